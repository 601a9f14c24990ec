//! How fast the simulator runs the scripts of a free lock: the figure that decides how many seeds a test can try.

use std::time::Instant;

use distlock_sim::{SimReply, SimScript, SimServer};

const PAIRS: u32 = 200_000;

#[test]
fn acquire_and_release_pairs_per_second() {
    let acquire =
        SimScript::new(concat!(include_str!("../lua/common/holds.lua"), include_str!("../lua/reentrant/acquire.lua")));
    let release =
        SimScript::new(concat!(include_str!("../lua/common/holds.lua"), include_str!("../lua/reentrant/release.lua")));
    let owner = b"6ecb1a4e-29f2-8cc4-a7d4-4be3a5bdfb0e:42";
    let server = SimServer::new(1);
    let start = Instant::now();
    for _ in 0..PAIRS {
        let taken = server.run(&acquire, &[b"orders:42"], &[owner, b"30000"]);
        assert_eq!(taken, SimReply::Nil);
        let channel = b"redisson_lock__channel:{orders:42}";
        let freed = server.run(&release, &[b"orders:42"], &[owner, b"30000", b"publish", channel]);
        assert_eq!(freed, SimReply::Int(0));
    }
    let rate = f64::from(PAIRS) / start.elapsed().as_secs_f64();
    println!("{rate:.0} acquire/release pairs a second");
    assert!(cfg!(debug_assertions) || rate >= 100_000.0, "{rate:.0} pairs a second");
}
