//! Runs the soak for a minute. `./x soak` runs it for longer.

use std::process::Command;

use distlock_support::reaper::Adopted;

#[test]
fn soak_succeeds_for_one_minute() {
    let mut soak = Command::new(env!("CARGO_BIN_EXE_distlock-soak")).args(["--minutes", "1"]).spawn().unwrap();
    let _adopted = Adopted::new(soak.id());
    assert!(soak.wait().unwrap().success(), "see above");
}
