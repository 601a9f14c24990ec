//! `distlock top`, at a pseudo-terminal. `src/top/tests.rs` tests the drawing.

use distlock_support::terminal::Terminal;
use rustix::process::Signal;

use crate::rig::{Bed, JAVA};

/// Switches back from the alternate screen.
const LEAVES: &str = "\x1b[?1049l";

async fn showing_a_lock(bed: &Bed) -> Terminal {
    bed.java_locks("zebra", JAVA).await;
    let terminal = bed.at_terminal(&["top", "--interval", "100ms"]);
    terminal.shows("zebra").await;
    assert!(!terminal.is_line_mode());
    terminal
}

fn assert_restored(terminal: &Terminal) {
    assert!(terminal.is_line_mode());
    assert!(terminal.screen().contains(LEAVES), "{}", terminal.screen());
}

#[tokio::test]
async fn top_shows_locks_and_q_restores_the_terminal() {
    let bed = Bed::new().await;
    let mut terminal = showing_a_lock(&bed).await;
    terminal.shows("reentrant").await;
    // A lock that appears later is found by the next pass of the scan.
    bed.java_locks("yak", JAVA).await;
    terminal.shows("yak").await;
    // The screen shows `free` in place of the holder.
    let _: i64 = bed.admin.cmd(&["DEL", "zebra"]).await;
    terminal.shows("free").await;
    terminal.type_keys("q");
    terminal.ends_with(0).await;
    assert_restored(&terminal);
}

#[tokio::test]
async fn signals_end_top_and_restore_the_terminal() {
    let bed = Bed::new().await;
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut terminal = showing_a_lock(&bed).await;
        terminal.signal(signal);
        terminal.ends_with(code).await;
        assert_restored(&terminal);
    }
}

#[tokio::test]
async fn top_without_a_terminal_names_list() {
    let bed = Bed::new().await;
    let ran = bed.run(&["top"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(64), ""), "{ran:?}");
    assert!(ran.err.contains("distlock list"), "{ran:?}");
}
