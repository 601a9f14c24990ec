//! How Redisson reads its own configuration.

use std::io::{BufRead as _, Write as _};
use std::process::{ChildStdin, ChildStdout};

use super::pipes::QUICK;
use super::*;
use crate::reaper::Adopted;

/// A Java process that parses YAML by `Config.fromYAML`, and connects to nothing.
#[derive(Debug)]
pub struct Configs {
    adopted: Option<Adopted>,
    child: std::process::Child,
    input: ChildStdin,
    output: std::io::BufReader<ChildStdout>,
}

impl Configs {
    /// Starts a process with this version of Redisson, and these variables in addition to its environment.
    pub fn start(version: &str, variables: &[(String, String)]) -> Self {
        let classpath = Agent::build(version);
        let mut command = Command::new(build::tool("java"));
        command.args(QUICK).args(["-XX:-UsePerfData", "-cp", classpath.as_str(), "distlock.interop.Configs"]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("java: {e}; {NEEDS}"));
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let adopted = Some(Adopted::new(child.id()));
        Self { adopted, child, input, output: std::io::BufReader::new(output) }
    }

    /// Parses a text. Returns all fields by name, nested ones too, or the error and its message.
    pub fn read(&mut self, yaml: &str) -> Result<Value, String> {
        writeln!(self.input, "{}", json!(yaml)).expect("the reader takes it");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the reader answers");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        if answer["ok"] == true {
            Ok(answer["value"].clone())
        } else {
            Err(format!("{}: {}", answer["error"], answer["message"]))
        }
    }
}

impl Drop for Configs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        drop(self.adopted.take());
        let _ = self.child.wait();
    }
}
