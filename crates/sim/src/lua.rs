//! Runs scripts in an embedded Lua 5.1, the version that Redis has.
//!
//! Scripts keep no state between runs. So one interpreter per thread serves all simulated servers of that thread; the
//! store is moved into it while a script runs.

use std::cell::RefCell;

use bytes::Bytes;
use mlua::{Either, Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};
use sha1::{Digest, Sha1};

use distlock::transport::Arg;

use super::commands::{self, Unfit, Words};
use super::number;
use super::place::Place;
use super::reply::SimReply;
use super::store::{FxMap, Store};

#[cfg(test)]
mod tests;

/// The chunk name that Redis gives to scripts.
const CHUNK: &str = "@user_script";

thread_local! {
    static INTERPRETER: Interpreter = Interpreter::new().expect("the prelude is a part of this crate and does run");
    /// The store of the running script, and buffers for the words of its commands.
    static STAGE: RefCell<Stage> = RefCell::new(Stage::default());
}

#[derive(Default)]
struct Stage {
    store: Store,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

struct Interpreter {
    lua: Lua,
    env: Table,
    run: Function,
    scripts: RefCell<FxMap<Bytes, Function>>,
}

pub(super) fn sha1hex(text: &[u8]) -> String {
    format!("{:x}", Sha1::digest(text))
}

/// A key or argument of a script.
pub(super) enum Word<'a> {
    Text(&'a [u8]),
    Int(i64),
}

impl<'a> From<&'a Arg> for Word<'a> {
    fn from(arg: &'a Arg) -> Self {
        match arg {
            Arg::Text(bytes) => Self::Text(bytes),
            Arg::Int(n) => Self::Int(*n),
        }
    }
}

/// Runs `source`, whose SHA-1 is `sha`, on `store`. Writes before an error are kept.
pub(super) fn eval<'a>(
    store: &mut Store,
    sha: &Bytes,
    source: &str,
    keys: impl Iterator<Item = Word<'a>>,
    args: impl Iterator<Item = Word<'a>>,
) -> SimReply {
    STAGE.with_borrow_mut(|stage| std::mem::swap(&mut stage.store, store));
    let reply = INTERPRETER.with(|interpreter| {
        interpreter.eval(sha, source, keys, args).unwrap_or_else(|error| SimReply::Error(format!("ERR {error}")))
    });
    STAGE.with_borrow_mut(|stage| std::mem::swap(&mut stage.store, store));
    reply
}

impl Interpreter {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        // A panic in here is a bug of the simulator, so scripts must not catch it.
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let raw = lua.create_function(raw)?;
        let hash = lua.create_function(|_, text: mlua::String| Ok(sha1hex(&text.as_bytes())))?;
        let line = lua.create_function(|lua, ()| Ok(line(lua)))?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("@prelude");
        let (env, run) = prelude.call((raw, hash, line))?;
        Ok(Self { lua, env, run, scripts: RefCell::default() })
    }

    fn eval<'a>(
        &self,
        sha: &Bytes,
        source: &str,
        keys: impl Iterator<Item = Word<'a>>,
        args: impl Iterator<Item = Word<'a>>,
    ) -> mlua::Result<SimReply> {
        let known = self.scripts.borrow().get(sha).cloned();
        let script = match known {
            Some(script) => script,
            None => match self.compile(source) {
                Ok(script) => {
                    self.scripts.borrow_mut().insert(sha.clone(), script.clone());
                    script
                }
                Err(error) => {
                    let text = format!("ERR Error compiling script (new function): {error}");
                    return Ok(SimReply::Error(text.replace('\n', " ")));
                }
            },
        };
        let (done, value): (bool, Value) = self.run.call((&script, self.words(keys)?, self.words(args)?))?;
        if done {
            return reply(value);
        }
        let Value::Table(error) = value else {
            return Ok(SimReply::Error("ERR the script failed without saying why".into()));
        };
        let text = lossy(&error.raw_get::<Value>("err")?);
        let line: Option<usize> = error.raw_get("line")?;
        // A tail call `return call(..)` drops the script's frame, so its error has no line. In Redis the frame stays.
        let line = line.map_or_else(|| "?".to_owned(), |line| line.to_string());
        Ok(SimReply::Error(format!("{text} script: {}, on {CHUNK}:{line}.", String::from_utf8_lossy(sha))))
    }

    fn words<'a>(&self, words: impl Iterator<Item = Word<'a>>) -> mlua::Result<Table> {
        let mut strange = Ok(());
        let list = words.map(|word| match word {
            Word::Int(n) => Either::Left(Either::Right(n.to_string())),
            Word::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Either::Left(Either::Left(text)),
                Err(_) => Either::Right(self.lua.create_string(bytes).map_err(|error| strange = Err(error)).ok()),
            },
        });
        let table = self.lua.create_sequence_from(list)?;
        strange.map(|()| table)
    }

    fn compile(&self, source: &str) -> mlua::Result<Function> {
        self.lua.load(source).set_name(CHUNK).set_environment(self.env.clone()).into_function()
    }
}

/// Returns the current line of the script's innermost frame.
fn line(lua: &Lua) -> Option<usize> {
    let mut level = 0;
    loop {
        let (ours, line) =
            lua.inspect_stack(level, |frame| (frame.source().source.as_deref() == Some(CHUNK), frame.current_line()))?;
        if ours {
            return line;
        }
        level += 1;
    }
}

/// Runs one command of a script. Returns its reply, or Nil and the text of an error.
fn raw(lua: &Lua, args: MultiValue) -> mlua::Result<(Value, Option<String>)> {
    let answer = STAGE.with_borrow_mut(|stage| {
        let Stage { store, bytes, ends } = stage;
        bytes.clear();
        ends.clear();
        if args.is_empty() {
            return Err("ERR Please specify at least one argument for this redis.lib call".into());
        }
        for arg in &args {
            match arg {
                Value::String(text) => bytes.extend_from_slice(&text.as_bytes()),
                Value::Integer(n) => number::float_text(*n as f64, bytes),
                Value::Number(n) => number::float_text(*n, bytes),
                _ => return Err("ERR Lua redis lib command arguments must be strings or integers".into()),
            }
            ends.push(bytes.len());
        }
        let words = Words::new(bytes, ends);
        if store.place.as_deref().is_some_and(|place| place.client.is_some()) {
            let outcome = store.route(commands::channel(&words), commands::keys(&words));
            outcome.map_err(|refusal| Place::text_in_script(refusal).to_owned())?;
        }
        match commands::execute(store, &words) {
            Ok(answer) => answer,
            Err(Unfit::Unknown) => Err("ERR Unknown Redis command called from script".into()),
            Err(Unfit::Arity) => Err("ERR Wrong number of args calling Redis command from script".into()),
        }
    });
    match answer {
        Ok(reply) => Ok((value(lua, reply)?, None)),
        Err(text) => Ok((Value::Nil, Some(text))),
    }
}

/// Converts a reply to what a script sees.
fn value(lua: &Lua, reply: SimReply) -> mlua::Result<Value> {
    Ok(match reply {
        SimReply::Nil => Value::Boolean(false),
        // Lua 5.1 has doubles only.
        SimReply::Int(n) => Value::Number(n as f64),
        SimReply::Text(text) => Value::String(lua.create_string(&text)?),
        SimReply::Status(text) => Value::Table(lua.create_table_from([("ok", text)])?),
        SimReply::Error(text) => Value::Table(lua.create_table_from([("err", text)])?),
        SimReply::List(items) => {
            let items = items.into_iter().map(|item| value(lua, item)).collect::<mlua::Result<Vec<_>>>()?;
            Value::Table(lua.create_sequence_from(items)?)
        }
    })
}

/// Converts a script's return value to a reply, by Redis' rules.
fn reply(value: Value) -> mlua::Result<SimReply> {
    Ok(match value {
        Value::Boolean(true) => SimReply::Int(1),
        Value::Integer(n) => SimReply::Int(n),
        Value::Number(n) => SimReply::Int(number::truncate(n)),
        Value::String(text) => SimReply::Text(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Table(table) => {
            if let error @ Value::String(_) = table.raw_get("err")? {
                return Ok(SimReply::Error(lossy(&error)));
            }
            if let status @ Value::String(_) = table.raw_get("ok")? {
                return Ok(SimReply::Status(lossy(&status).replace(['\r', '\n'], " ")));
            }
            let mut items = Vec::new();
            loop {
                match table.raw_get(items.len() + 1)? {
                    Value::Nil => break,
                    item => items.push(reply(item)?),
                }
            }
            SimReply::List(items)
        }
        _ => SimReply::Nil,
    })
}

fn lossy(value: &Value) -> String {
    match value {
        Value::String(text) => String::from_utf8_lossy(&text.as_bytes()).into_owned(),
        _ => String::new(),
    }
}
