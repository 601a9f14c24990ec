//! A minute of it; for longer there is `./x soak`.

use std::process::Command;

#[test]
fn a_minute_of_everything() {
    let status = Command::new(env!("CARGO_BIN_EXE_distlock-soak")).args(["--minutes", "1"]).status();
    assert!(status.unwrap().success(), "see above");
}
