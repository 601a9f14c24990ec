//! Free ports.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

/// Below the kernel's range for outgoing connections. Otherwise a client that keeps connecting to the port of a dead
/// server could end up connected to itself.
const PORTS: Range<u32> = 11_000..22_000;

/// A cluster node's bus port is this much above its port.
pub(crate) const BUS_OFFSET: u16 = 10_000;
/// Ports of cluster nodes. The lower bound keeps every bus port above [`PORTS`], so no test reserves a bus port. The
/// upper bound keeps bus ports below the kernel's range for outgoing connections.
const NODE_PORTS: Range<u32> = 12_000..21_000;

/// A TCP port that no other test reserves while this value lives, even while its server is down.
///
/// Without the reservation, a server of another test could take the port of a server that a test has killed. The
/// reservation is a UDP socket at the same number: it needs no file, it holds across processes, and it ends with them.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: UdpSocket,
}

impl Port {
    /// Reserves a port that is free now. A program that is not one of these tests may still take it.
    pub fn reserve() -> Self {
        next(PORTS, &is_free)
    }

    /// Reserves a port for a cluster node: the port of its bus is free as well.
    pub(crate) fn reserve_for_node() -> Self {
        next(NODE_PORTS, &|port| is_free(port) && is_free(port + BUS_OFFSET))
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn next(among: Range<u32>, suits: &dyn Fn(u16) -> bool) -> Port {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = clock.map_or(0, |d| d.subsec_nanos()) ^ std::process::id().rotate_left(16);
    // The first call of a process sets the start. Steps of 7 reach every port: 7 is coprime to the length of either
    // range.
    let _ = NEXT.compare_exchange(0, seed | 1, Ordering::Relaxed, Ordering::Relaxed);
    let ports = among.end - among.start;
    for _ in 0..ports {
        let n = NEXT.fetch_add(7, Ordering::Relaxed);
        let port = u16::try_from(among.start + n % ports).unwrap_or(u16::MAX);
        let reservation = UdpSocket::bind((Ipv4Addr::LOCALHOST, port));
        if let (Ok(reservation), true) = (reservation, suits(port)) {
            return Port { number: port, _reservation: reservation };
        }
    }
    panic!("no free port in {among:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_port_leaves_room_for_bus_port() {
        for _ in 0..100 {
            let port = Port::reserve_for_node().number();
            let bus = u32::from(port + BUS_OFFSET);
            assert!(port <= 20_999 && !PORTS.contains(&bus) && bus < 32_768, "{port}");
        }
        let taken = Port::reserve_for_node().number();
        let bus = TcpListener::bind((Ipv4Addr::LOCALHOST, taken + BUS_OFFSET)).expect("it was free");
        let near = u32::from(taken)..u32::from(taken) + 100;
        assert_ne!(
            next(near, &|port| is_free(port + BUS_OFFSET)).number(),
            bus.local_addr().expect("bound").port() - BUS_OFFSET
        );
    }

    #[test]
    fn reserved_port_is_not_given_again_until_dropped() {
        let reserved = Port::reserve();
        let number = u32::from(reserved.number());
        let again = std::panic::catch_unwind(|| next(number..number + 1, &is_free));
        assert!(again.is_err(), "{again:?}");
        drop(reserved);
        assert_eq!(u32::from(next(number..number + 1, &is_free).number()), number);
    }
}
