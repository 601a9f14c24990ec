//! Checks the state of a read-write lock, and that its readers acquire when the lock admits them (W1).

use crate::prelude::*;

/// The waiting readers, and since when each lock admits readers.
pub struct Readers {
    names: Vec<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<usize, Waiter>,
    next: usize,
    /// By name: since when the lock admits readers, and the number of looks since.
    open: Vec<Option<(u32, Instant)>>,
}

struct Waiter {
    name: usize,
    since: Instant,
    told: bool,
}

impl Readers {
    pub fn new(names: &[String]) -> Self {
        let open = names.iter().map(|_| None).collect();
        Self { names: names.to_vec(), state: Mutex::new(State { open, ..State::default() }) }
    }

    pub fn waits(&self, name: usize) -> usize {
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        state.waiting.insert(number, Waiter { name, since: Instant::now(), told: false });
        number
    }

    pub fn gone(&self, waiter: usize) {
        self.state.lock().waiting.remove(&waiter);
    }

    /// Records that a writer held the lock.
    pub fn shut(&self, name: usize) {
        self.state.lock().open[name] = None;
    }

    /// Checks which owners hold the lock together, and that no admitted reader waits for longer than `bound`. Returns
    /// the broken rules, and whether the lock has a live holder.
    pub fn look(&self, server: &SimServer, name: usize, bound: Duration) -> (Vec<String>, bool) {
        let key = &self.names[name];
        let mut wrong = Vec::new();
        let fields = words(&does(server, &format!("hgetall {key}")));
        let mode = fields.chunks(2).find(|pair| pair[0] == "mode").map(|pair| pair[1].clone());
        // A list of hold ids is not a holder.
        let holds = |field: &&str| *field != "mode" && !field.ends_with(":holds");
        let holders: Vec<&str> = fields.chunks(2).map(|pair| &*pair[0]).filter(holds).collect();
        let writers: Vec<&str> = holders.iter().filter_map(|field| field.strip_suffix(":write")).collect();
        let sound = match (mode.as_deref(), &writers[..]) {
            (None, _) => fields.is_empty(),
            (Some("read"), []) => !holders.is_empty(),
            (Some("write"), [writer]) => holders.iter().all(|field| field.trim_end_matches(":write") == *writer),
            _ => false,
        };
        if !sound {
            wrong.push(format!("RW1: {key} is {fields:?}"));
        }
        let prefix = format!("{{{key}}}:");
        let is_written = mode.as_deref() == Some("write");
        let mut live = is_written;
        for other in server.keys().iter().filter(|other| other.starts_with(prefix.as_bytes())) {
            let left = server.pttl(other);
            if left == -1 {
                wrong.push(format!("L2: {} never ends", String::from_utf8_lossy(other)));
            }
            let cover = String::from_utf8_lossy(&other[prefix.len()..]).into_owned();
            let owner = cover.split(":rwlock_timeout:").next().unwrap_or_default();
            live |= left > 0 && holders.contains(&owner);
        }

        let mut state = self.state.lock();
        let now = Instant::now();
        let State { waiting, open, .. } = &mut *state;
        if is_written {
            open[name] = None;
        } else {
            let (looks, since) = open[name].get_or_insert((0, now));
            *looks += 1;
            for waiter in waiting.values_mut().filter(|waiter| waiter.name == name && !waiter.told) {
                let waits = now - waiter.since.max(*since);
                // One look is not enough, because a jump of the clock is not a wait.
                if *looks > 3 && waits > bound {
                    waiter.told = true;
                    wrong.push(format!("W1: a reader waits for {key} for {waits:?}, which is {fields:?}"));
                }
            }
        }
        (wrong, live)
    }
}
