//! Runs every call of a family in every state, with every distribution of its keys over both sides.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use distlock_support::slot_of;

use super::cases::{Call, Family};
use super::outcome::{Outcome, changed, failed, judge};
use super::slot::{Alone, NAME, OpenSlot, Said, Seen, Way};
use super::two_nodes;

/// Maximum age of an unchanged prepared state. Longer ages would change the state, because waiters live for 4 s.
const FRESH: Duration = Duration::from_millis(500);

/// A call whose preparation, run and readings take longer is repeated, because the leases of the two sides would
/// differ.
const SLOW: Duration = Duration::from_millis(900);

/// Number of broken cases that are printed.
const TOLD: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    Declared,
    /// The keys are among the arguments.
    Undeclared,
}

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub refused: usize,
    pub in_part: usize,
    pub whole: usize,
    /// The number of calls with another outcome, and the first few of them.
    pub breaks: usize,
    pub broken: Vec<String>,
}

impl Tally {
    pub fn calls(&self) -> usize {
        self.refused + self.in_part + self.whole + self.breaks
    }
}

#[derive(Debug, Default)]
pub struct Walked {
    pub tallies: BTreeMap<(&'static str, Way), Tally>,
    /// Server errors of refused calls, without call-specific details.
    reasons: BTreeMap<String, BTreeSet<&'static str>>,
}

impl Walked {
    fn note(&mut self, call: &Call, way: Way, said: &Said, became: Result<Outcome, String>, at: &str) {
        let tally = self.tallies.entry((call.script, way)).or_default();
        match became {
            Ok(Outcome::Refused) => tally.refused += 1,
            Ok(Outcome::InPart) => tally.in_part += 1,
            Ok(Outcome::Whole) => tally.whole += 1,
            Err(why) => {
                tally.breaks += 1;
                if tally.broken.len() < TOLD {
                    tally.broken.push(format!("{at}: {why}; it said {said:?}"));
                }
            }
        }
        let all: Vec<&String> = match said {
            Err(error) => vec![error],
            Ok(answers) => answers.iter().filter_map(|answer| answer.as_ref().err()).collect(),
        };
        for error in all {
            let words = error.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
            self.reasons.entry(words.collect::<Vec<_>>().join(" ")).or_default().insert(call.script);
        }
    }
}

impl fmt::Display for Walked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((script, way), tally) in &self.tallies {
            let Tally { refused, in_part, whole, breaks, broken } = tally;
            writeln!(f, "{script}, {way:?}: {whole} whole, {in_part} in part, {refused} refused, {breaks} broken")?;
            for why in broken {
                writeln!(f, "    {why}")?;
            }
        }
        for (reason, scripts) in &self.reasons {
            writeln!(f, "`{reason}` of {scripts:?}")?;
        }
        Ok(())
    }
}

/// All subsets of those keys of the commands that are in the slot.
fn splits(state: &[Vec<String>]) -> Vec<BTreeSet<String>> {
    let keys = state.iter().map(|command| &command[1]);
    let keys: BTreeSet<&String> = keys.filter(|key| slot_of(key) == slot_of(NAME)).collect();
    let some =
        |bits: u32| keys.iter().enumerate().filter(move |(n, _)| bits >> n & 1 == 1).map(|(_, key)| (*key).clone());
    (0..1_u32 << keys.len()).map(|bits| some(bits).collect()).collect()
}

/// Repeats the work until it takes less than [`SLOW`], and returns its outcome.
async fn quickly<T>(mut work: impl AsyncFnMut() -> T) -> T {
    for _ in 0..100 {
        let begun = Instant::now();
        let outcome = work().await;
        if begun.elapsed() < SLOW {
            return outcome;
        }
    }
    panic!("a call takes longer than {SLOW:?} each time");
}

pub async fn walk(family: &Family, handed: Keys, ways: &[Way]) -> Walked {
    let (cluster, alone) = (two_nodes().await, Alone::start().await);
    let slot = OpenSlot::of(&cluster).await;
    let mut walked = Walked::default();
    for (number, state) in family.states.iter().enumerate() {
        let mut elsewhere = BTreeMap::new();
        let open = splits(&alone.words().commands(state)).into_iter().map(|moved| (ways, Some(moved)));
        for (ways, moved) in [(&[Way::Settled][..], None)].into_iter().chain(open) {
            let mut made: Option<(Instant, [Seen; 2])> = None;
            for (n, call) in family.calls.iter().enumerate() {
                let mut sent_on = false;
                for way in ways.iter().copied() {
                    // A server treats a single missing key behind `ASKING` as free, so clients never send such calls
                    // there.
                    if way == Way::Asking && call.keys() == 1 && !sent_on {
                        continue;
                    }
                    let (before, said, after) = quickly(async || {
                        let before = match made.take().filter(|(at, _)| at.elapsed() < FRESH) {
                            Some(made) => made,
                            None => {
                                let at = Instant::now();
                                slot.set_up(&alone.words().commands(state), moved.as_ref()).await;
                                (at, slot.look().await)
                            }
                        };
                        let said = slot.at(way).say(call, &alone.words(), &BTreeSet::new(), handed).await;
                        (before, said, slot.look().await)
                    })
                    .await;
                    sent_on |= matches!(&said, Err(error) if error.starts_with("ASK"));
                    let without = failed(&said, call.steps.len());
                    let should = match elsewhere.get(&(n, without.clone())) {
                        Some(should) => should,
                        None => {
                            let found = quickly(async || alone.run(state, call, &without).await).await;
                            elsewhere.entry((n, without.clone())).or_insert(found)
                        }
                    };
                    let became = judge(&said, &before.1, &after, should);
                    let at = format!("state {number}, {:?} with {moved:?} moved", call.steps);
                    walked.note(call, way, &said, became, &at);
                    made = changed(&before.1, &after).is_none().then_some(before);
                }
            }
        }
    }
    walked
}
