//! The child fixture: talk, freeze, end, and orphans.

use std::time::Duration;

use distlock_support::child::{self, Child};
use distlock_support::reaper;

#[tokio::test]
async fn echo_child() {
    if !child::is_child() {
        return;
    }
    child::init();
    child::say(&format!("pid {}", std::process::id()));
    loop {
        let line = child::hear().await;
        if line == "end" {
            return;
        }
        println!("not for the protocol: {line}");
        child::say(&line);
    }
}

/// A child with two children of its own. One is frozen.
#[tokio::test]
async fn parent_child() {
    if !child::is_child() {
        return;
    }
    child::init();
    let mut children = [(); 2].map(|()| Child::spawn("child::echo_child", &[]));
    for grandchild in &mut children {
        grandchild.line().await.expect("a line");
    }
    children[0].stop();
    child::say(&format!("{} {}", children[0].pid(), children[1].pid()));
    std::future::pending().await
}

#[tokio::test]
async fn child_echoes_lines_freezes_and_ends() {
    let mut echo = Child::spawn("child::echo_child", &[]);
    let pid = format!("pid {}", echo.pid());
    echo.expect(&pid).await;
    echo.tell("one");
    echo.expect("one").await;
    echo.stop();
    echo.tell("two");
    let frozen = tokio::time::timeout(Duration::from_millis(200), echo.line()).await;
    assert!(frozen.is_err());
    echo.cont();
    echo.expect("two").await;
    echo.tell("end");
    assert!(echo.wait().await.success());
    assert_eq!(echo.line().await, None);
    assert!(echo.output().contains("not for the protocol: one"));
}

#[tokio::test]
async fn killed_child_has_ended() {
    let mut echo = Child::spawn("child::echo_child", &[]);
    assert!(echo.line().await.is_some());
    let pid = echo.pid();
    echo.kill9();
    assert!(reaper::has_ended(pid));
    assert_eq!(echo.line().await, None);
    assert!(!echo.wait().await.success());
}

#[tokio::test]
async fn orphans_end_when_their_parent_is_killed() {
    crate::end_with_their_process("child::parent_child").await;
}
