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

/// A child with a child of its own. Their lines tell them apart.
#[tokio::test]
async fn parent_child() {
    if !child::is_child() {
        return;
    }
    child::init();
    let mut grandchild = Child::spawn("child::echo_child", &[]);
    let line = grandchild.line().await.expect("a line");
    if std::env::var_os("FREEZE").is_some() {
        grandchild.stop();
    }
    child::say(&line);
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

async fn orphan_dies(env: &[(&str, &str)]) {
    let mut parent = Child::spawn("child::parent_child", env);
    let line = parent.line().await.expect("a line");
    let pid = line.strip_prefix("pid ").and_then(|p| p.parse().ok());
    let pid = pid.expect("a pid");
    assert!(!reaper::has_ended(pid));
    parent.kill9();
    crate::until("the orphan's end", async || reaper::has_ended(pid)).await;
}

#[tokio::test]
async fn orphan_ends_when_its_parent_is_killed() {
    orphan_dies(&[]).await;
}

#[tokio::test]
async fn frozen_orphan_ends_when_its_parent_is_killed() {
    orphan_dies(&[("FREEZE", "1")]).await;
}
