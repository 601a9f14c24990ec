//! Plays random sequences on an object, and compares it with its model after each step.

use std::fmt::Debug;

use distlock::Client;
use distlock_support::Numbers;
use serde_json::Value;

use crate::latch::end_with_tokens;
use crate::rig::{Rig, soon};

/// The name of the object. All sequences use it, one after the other.
pub const NAME: &str = "model";

/// The side that makes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Ours,
    Java,
    /// No client: a key gets a TTL, or a lease or a TTL ends.
    Server,
}

/// An object that both clients use, with its model.
pub trait Object: Sized {
    type Step: Debug;
    type Answer: Debug + PartialEq;

    fn open(client: &Client, version: &str) -> Self;

    /// Chooses the next step of this side.
    fn choose(&mut self, dice: &mut Numbers, side: Side) -> Self::Step;

    /// Makes the step on the server.
    async fn ask(&mut self, rig: &Rig, side: Side, step: &Self::Step) -> Self::Answer;

    /// Makes the step in the model, and returns the model's answer. `answer`: what the side has answered. The model
    /// takes only the ids of new permits from it.
    fn expect(&mut self, side: Side, step: &Self::Step, answer: &Self::Answer) -> Self::Answer;

    /// Compares Redis with the model.
    async fn compare(&mut self, rig: &Rig) -> Result<(), String>;

    /// The state of the model, for the report of a failure.
    fn state(&self) -> String;

    /// Deletes the object's keys.
    async fn clean(&mut self, rig: &Rig);
}

/// The steps of one sequence. Prints them if the test fails, whatever the reason.
struct Story {
    title: String,
    lines: Vec<String>,
}

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}\n{}", self.title, self.lines.join("\n"));
        }
    }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

pub async fn play_all<O: Object>(version: &str) {
    let steps = from_env("STEPS").unwrap_or(25);
    let (first, last) = from_env("SEED").map_or((1, from_env("SEQUENCES").unwrap_or(30)), |seed| (seed, seed));
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    for seed in first..=last {
        play(&rig, O::open(&client, version), version, seed, steps).await;
    }
    end_with_tokens(rig, [client]).await;
}

async fn play<O: Object>(rig: &Rig, mut object: O, version: &str, seed: u64, steps: u64) {
    let mut story = Story { title: format!("SEED={seed}, with Redisson {version}:"), lines: Vec::new() };
    let mut dice = Numbers::new(seed);
    if let Err(how) = object.compare(rig).await {
        panic!("SEED={seed}, before step 1: {how}");
    }
    for at in 1..=steps {
        let side = match dice.below(20) {
            0..3 => Side::Server,
            3..11 => Side::Java,
            _ => Side::Ours,
        };
        let step = object.choose(&mut dice, side);
        story.lines.push(format!("{at:3} {side:?}: {step:?}"));
        let answer = object.ask(rig, side, &step).await;
        let expected = object.expect(side, &step, &answer);
        story.lines.push(format!("    -> {answer:?}"));
        story.lines.push(format!("    {}", object.state()));
        assert_eq!(answer, expected, "SEED={seed}, step {at}: the answer (left) is not the model's answer (right)");
        if let Err(how) = object.compare(rig).await {
            panic!("SEED={seed}, step {at}: {how}");
        }
    }
    object.clean(rig).await;
}

/// Java's answer to a call on [`NAME`].
pub async fn java(rig: &Rig, op: &str, fields: Value) -> Result<Value, String> {
    soon(rig.java(NAME, 1).start(op, fields)).await.map(|reply| reply.value).map_err(|error| error.to_string())
}

/// An answer as a number. True counts as 1, and so does the answer of a call that returns nothing.
pub fn as_number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_bool().map(i64::from))
}

/// The answer of a Java call that returns a number, a boolean or nothing.
pub async fn java_number(rig: &Rig, op: &str, fields: Value) -> Result<i64, String> {
    let value = java(rig, op, fields).await?;
    as_number(&value).ok_or_else(|| format!("{op} answers {value}"))
}
