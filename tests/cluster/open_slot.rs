//! A slot that is being moved: some keys are at its source still, some at its target already. A script does there what it does
//! elsewhere, or is refused and leaves no trace, at either side. Of several steps in a command that holds for each.

mod cases;
mod halves;
mod outcome;
mod queues;
mod slot;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bed::scripts;
use cases::{Call, FAMILIES, Family};
use distlock_support::undisturbed;
use outcome::{Outcome, answers_alike, changed, differs, failed};
use slot::{Alone, OpenSlot, Said, Seen, WAYS, Way};

use crate::primaries;

/// A state is made anew after so long, also if nothing has changed it: who waits is alive for 4 s.
const FRESH: Duration = Duration::from_millis(500);

/// What became of the calls of a script.
#[derive(Clone, Debug, Default)]
struct Tally {
    refused: usize,
    in_part: usize,
    whole: usize,
    /// What was neither; the first few of it.
    broken: Vec<String>,
    breaks: usize,
}

type Tallies = BTreeMap<(&'static str, Way), Tally>;

/// What servers answer to refused calls, without what is particular to one.
type Reasons = BTreeMap<String, BTreeSet<&'static str>>;

/// Every set of these keys.
fn splits(state: &[Vec<String>]) -> Vec<BTreeSet<String>> {
    let keys: BTreeSet<&String> = state.iter().map(|command| &command[1]).collect();
    let keys: Vec<&String> = keys.into_iter().collect();
    (0..1_u32 << keys.len())
        .map(|bits| keys.iter().enumerate().filter(|(n, _)| bits >> n & 1 == 1).map(|(_, key)| (*key).clone()).collect())
        .collect()
}

/// What calls do in a state on a server that is alone, without some of their steps.
type Elsewhere = BTreeMap<(usize, BTreeSet<usize>), (Said, Seen)>;

/// Runs every call of a family in every state of it, in every way in which its keys can be at the two sides.
async fn run(family: &Family, declared: bool) -> (Tallies, Reasons) {
    let (cluster, alone) = (primaries(2).await, Alone::start().await);
    let slot = OpenSlot::of(&cluster).await;
    let (mut tallies, mut reasons) = (Tallies::new(), Reasons::new());
    for (number, state) in family.states.iter().enumerate() {
        let mut elsewhere = Elsewhere::new();
        for split in splits(&alone.words().commands(state)) {
            let mut made: Option<(Instant, [Seen; 2])> = None;
            for (n, call) in family.calls.iter().enumerate() {
                let mut sent_on = false;
                for way in WAYS {
                    // A server that was asked for one key that it has not got takes it for free: nobody is sent there then.
                    if way == Way::Asking && call.keys() == 1 && !sent_on {
                        continue;
                    }
                    if made.as_ref().is_none_or(|(at, _)| at.elapsed() > FRESH) {
                        slot.set_up(&alone.words().commands(state), &split).await;
                        made = Some((Instant::now(), slot.look().await));
                    }
                    let Some((_, before)) = &made else { unreachable!() };
                    let said = slot.at(way).say(call, &alone.words(), &BTreeSet::new(), declared).await;
                    let after = slot.look().await;
                    sent_on |= matches!(&said, Err(error) if error.starts_with("ASK"));
                    note(&mut reasons, call, &said);
                    let without = failed(&said, call.steps.len());
                    let key = (n, without);
                    if !elsewhere.contains_key(&key) {
                        let found = alone.run(state, call, &key.1).await;
                        elsewhere.insert(key.clone(), found);
                    }
                    let tally = tallies.entry((call.script, way)).or_default();
                    match judge(&said, before, &after, &elsewhere[&key], key.1.len() == call.steps.len()) {
                        Ok(Outcome::Refused) => tally.refused += 1,
                        Ok(Outcome::InPart) => tally.in_part += 1,
                        Ok(Outcome::Whole) => tally.whole += 1,
                        Err(why) => {
                            tally.breaks += 1;
                            if tally.broken.len() < 3 {
                                let steps = call.steps;
                                tally.broken.push(format!(
                                    "state {number}, {steps:?} with {split:?} moved, {way:?}: {why}; it said {said:?}"
                                ));
                            }
                        }
                    }
                    if changed(before, &after).is_some() {
                        made = None;
                    }
                }
            }
        }
    }
    (tallies, reasons)
}

/// What became of one call, beside what the steps that did not fail do `elsewhere`.
fn judge(said: &Said, before: &[Seen; 2], after: &[Seen; 2], elsewhere: &(Said, Seen), all: bool) -> Result<Outcome, String> {
    if all {
        return changed(before, after).map_or(Ok(Outcome::Refused), Err);
    }
    let answers = said.as_ref().map_err(Clone::clone)?;
    let (should, seen) = elsewhere;
    let should = should.as_ref().map_err(|error| format!("elsewhere it fails: {error}"))?;
    let is = answers.iter().filter_map(|answer| answer.as_ref().ok());
    for (is, should) in is.zip(should) {
        let should = should.as_ref().map_err(|error| format!("elsewhere it fails: {error}"))?;
        if !answers_alike(is, after[0].at, should, seen.at) {
            return Err(format!("elsewhere it is answered {should:?}"));
        }
    }
    match differs(seen, after) {
        Some(why) => Err(why),
        None if answers.iter().any(Result::is_err) => Ok(Outcome::InPart),
        None => Ok(Outcome::Whole),
    }
}

fn note(reasons: &mut Reasons, call: &Call, said: &Said) {
    let all: Vec<&String> = match said {
        Err(error) => vec![error],
        Ok(answers) => answers.iter().filter_map(|answer| answer.as_ref().err()).collect(),
    };
    for error in all {
        let plain: Vec<&str> = error
            .split_whitespace()
            .filter(|word| !word.contains(|c: char| c.is_ascii_digit()) && !word.starts_with("f_"))
            .collect();
        reasons.entry(plain.join(" ")).or_default().insert(call.script);
    }
}

fn tell(tallies: &Tallies, reasons: &Reasons) {
    for ((script, way), tally) in tallies {
        let Tally { refused, in_part, whole, breaks, broken } = tally;
        println!("{script} {way:?}: {whole} whole, {in_part} in part, {refused} refused, {breaks} BROKEN");
        for why in broken {
            println!("    {why}");
        }
    }
    for (reason, scripts) in reasons {
        println!("{reason}  ({scripts:?})");
    }
}

async fn all_or_nothing(family: &'static Family) {
    undisturbed(async || {
        let (tallies, reasons) = run(family, true).await;
        tell(&tallies, &reasons);
        for ((script, way), tally) in &tallies {
            assert_eq!(tally.breaks, 0, "{script}, {way:?}: {:?}", tally.broken);
        }
    })
    .await;
}

bed::cases!(all_or_nothing:
    of_reentrant_locks = &FAMILIES[0],
    of_several_locks = &FAMILIES[1],
    of_fenced_locks = &FAMILIES[2],
    of_plain_locks = &FAMILIES[3],
    of_fair_locks = &FAMILIES[4],
    of_several_fair_locks = &FAMILIES[5],
    of_read_write_locks = &FAMILIES[6],
);

#[tokio::test]
async fn no_keys_declared() {
    for family in FAMILIES {
        println!("==== {}", family.name);
        let (tallies, reasons) = run(family, false).await;
        tell(&tallies, &reasons);
    }
}

#[test]
fn no_script_is_left_out() {
    let named: BTreeSet<&str> = FAMILIES.iter().flat_map(|family| family.calls).map(|call| call.script).collect();
    let all: BTreeSet<&str> = scripts::all().into_iter().map(|(name, _)| name).collect();
    assert_eq!(named, all);
}
