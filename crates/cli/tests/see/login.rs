//! The commands under the access list of `docs/acl.md`, for names that begin with `app:`.

use distlock::Flavour;

use crate::rig::{Bed, Ran, run};

const PAGE: &str = include_str!("../../../../docs/acl.md");

/// Creates the user of the page with more rules. Returns the URL with its login.
async fn log_in(bed: &Bed, more: &[&str]) -> String {
    let (_, list) = PAGE.split_once("```acl\n").unwrap();
    let rules = list.split("```").next().unwrap().split_whitespace().skip(1);
    let setuser: Vec<&str> = ["ACL", "SETUSER"].into_iter().chain(rules).chain(more.iter().copied()).collect();
    bed.admin.cmd::<()>(&setuser).await;
    bed.server.url().replace("://", "://locks:SECRET@")
}

async fn run_with_prefix(url: &str, words: &[&str]) -> Ran {
    run(url, &[words, &["--prefix", "app:"]].concat()).await
}

#[tokio::test]
async fn inspect_and_unlock_need_no_further_right() {
    let bed = Bed::new().await;
    let url = log_in(&bed, &[]).await;
    for flavour in Flavour::ALL {
        let name = flavour.as_str();
        let guard = bed.client.lock(*flavour, &format!("app:{name}")).lock().await.unwrap();
        for words in [&["inspect", name][..], &["unlock", name, "--force"]] {
            let ran = run_with_prefix(&url, words).await;
            assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
            assert!(ran.out.contains(guard.owner().as_str()), "{ran:?}");
        }
    }
    let permits = bed.client.permits("app:permits");
    permits.set_permits(2).await.unwrap();
    let _permit = permits.acquire(1).await.unwrap();
    let ran = run_with_prefix(&url, &["inspect", "permits"]).await;
    assert!(ran.code == Some(0) && ran.err.is_empty() && ran.out.contains("1 held and 1 free of 2"), "{ran:?}");
}

#[tokio::test]
async fn lock_that_the_login_may_not_read_is_not_reported_as_free() {
    let bed = Bed::new().await;
    let url = log_in(&bed, &["-hgetall", "-get"]).await;
    for (flavour, refused) in [(Flavour::Reentrant, "'hgetall'"), (Flavour::Plain, "'get'")] {
        let name = flavour.as_str();
        let _guard = bed.client.lock(flavour, &format!("app:{name}")).lock().await.unwrap();
        for words in [&["inspect", name][..], &["inspect", name, "--json"], &["unlock", name, "--force"]] {
            let ran = run_with_prefix(&url, words).await;
            assert_eq!((ran.code, ran.out.as_str()), (Some(70), ""), "{ran:?}");
            assert!(ran.err.contains(refused) && ran.err.contains("unknown whether"), "{ran:?}");
        }
        assert!(bed.admin.exists(&format!("app:{name}")).await);
    }
    assert_eq!(run_with_prefix(&url, &["inspect", "free"]).await.code, Some(1));
}

#[tokio::test]
async fn list_names_the_missing_right() {
    let bed = Bed::new().await;
    let _reentrant = bed.client.reentrant("app:reentrant").lock().await.unwrap();
    let _plain = bed.client.plain("app:plain").lock().await.unwrap();
    let (none, scan, both) = ([], ["+scan"], ["+scan", "+getrange", "-hlen"]);
    for (rights, missing) in [(&none[..], "+scan"), (&scan[..], "+getrange"), (&both[..], "+hlen")] {
        let url = log_in(&bed, rights).await;
        let ran = run_with_prefix(&url, &["list"]).await;
        assert_eq!(ran.code, Some(70), "{ran:?}");
        assert!(ran.err.contains(&format!("right {missing} is missing")), "{ran:?}");
        assert!(!ran.err.contains(" script: "), "the hash of a script: {ran:?}");
    }
    let url = log_in(&bed, &["+scan", "+getrange"]).await;
    let lists = [run(&url, &["list"]).await, run_with_prefix(&url, &["list"]).await];
    for (ran, count) in lists.iter().zip(["2 locks among 2 keys\n", "2 locks among 2 matching keys\n"]) {
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), count), "{ran:?}");
    }
}
