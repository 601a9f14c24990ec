//! `distlock unlock --force`.

use distlock::Flavour;

use crate::rig::{Bed, JAVA, ends, until};

#[tokio::test]
async fn unlock_without_force_explains_and_frees_nothing() {
    let bed = Bed::new().await;
    bed.java_locks("a", JAVA).await;
    let ran = bed.run(&["unlock", "a"]).await;
    assert_eq!(ran.code, Some(64), "{ran:?}");
    assert!(ran.err.contains("--force"), "{ran:?}");
    assert!(bed.admin.exists("a").await);
}

#[tokio::test]
async fn unlock_frees_a_lock_of_any_flavour_and_says_who_held_it() {
    let bed = Bed::new().await;
    for flavour in Flavour::ALL {
        let lock = bed.client.lock(*flavour, flavour.as_str());
        let guard = lock.lock().await.unwrap();
        let ran = bed.run(&["unlock", flavour.as_str(), "--force"]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.out.contains(guard.owner().as_str()), "{ran:?}");
        assert!(!lock.is_locked().await.unwrap(), "{flavour}");
        let ran = bed.run(&["unlock", flavour.as_str(), "--force"]).await;
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.err.contains("not locked"), "{ran:?}");
    }
}

#[tokio::test]
async fn unlock_of_a_fair_lock_passes_it_to_the_next_waiter() {
    let bed = Bed::new().await;
    let fair = bed.client.fair("a");
    bed.java_locks("a", JAVA).await;
    let waits = fair.clone();
    let waiter = tokio::spawn(async move { waits.lock().await });
    until("a waiter", async || fair.queue_len().await.unwrap() == 1).await;
    let ran = bed.run(&["unlock", "a", "--force"]).await;
    assert!(ran.code == Some(0) && ran.out.contains("flavour fair") && ran.out.contains(JAVA), "{ran:?}");
    let _guard = ends("the waiter", waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn unlock_of_a_foreign_plain_lock_needs_no_flavour() {
    let bed = Bed::new().await;
    let _: String = bed.admin.cmd(&["SET", "a", "of another library", "PX", "600000"]).await;
    let ran = bed.run(&["unlock", "a", "--force"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!bed.admin.exists("a").await);
}

#[tokio::test]
async fn unlock_refuses_keys_that_are_no_locks() {
    let bed = Bed::new().await;
    bed.client.permits("permits").set_permits(1).await.unwrap();
    let _permit = bed.client.permits("permits").acquire(1).await.unwrap();
    let _: String = bed.admin.cmd(&["SET", "number", "5"]).await;
    let _: i64 = bed.admin.cmd(&["HSET", "hash", "colour", "blue"]).await;
    for (name, code) in [("permits", 64), ("number", 64), ("hash", 1)] {
        let ran = bed.run(&["unlock", name, "--force"]).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(bed.admin.exists(name).await, "{name}");
    }
    for flavour in ["reentrant", "permits"] {
        let ran = bed.run(&["unlock", "hash", "--force", "--flavour", flavour]).await;
        assert!(ran.code == Some(64) && ran.err.contains("type hash"), "{ran:?}");
    }
    assert!(bed.admin.exists("hash").await);
}

#[tokio::test]
async fn unlock_of_a_plain_lock_without_a_lease_needs_its_flavour() {
    let bed = Bed::new().await;
    let _: String = bed.admin.cmd(&["SET", "a", "of another library"]).await;
    let ran = bed.run(&["unlock", "a", "--force"]).await;
    assert!(ran.code == Some(1) && ran.err.contains("--flavour plain"), "{ran:?}");
    let ran = bed.run(&["unlock", "a", "--force", "--flavour", "plain"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!bed.admin.exists("a").await);
}

#[tokio::test]
async fn unlock_deletes_permits_only_with_their_flavour() {
    let bed = Bed::new().await;
    let gate = bed.client.permits("gate");
    gate.set_permits(2).await.unwrap();
    let permit = gate.acquire(1).await.unwrap();
    let ran = bed.run(&["unlock", "gate", "--force"]).await;
    assert!(ran.code == Some(64) && ran.err.contains("--flavour permits"), "{ran:?}");
    assert_eq!(gate.counts().await.unwrap().total(), 2);
    let unlock = ["unlock", "gate", "--force", "--flavour", "permits"];
    let ran = bed.run(&unlock).await;
    assert!(ran.code == Some(0) && ran.out.contains(&permit.ids()[0].to_string()), "{ran:?}");
    assert_eq!(bed.admin.keys().await, [""; 0]);
    let ran = bed.run(&unlock).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
}

/// The hash does not show whether the holder uses a fenced lock.
#[tokio::test]
async fn commands_agree_about_a_reentrant_lock_whose_name_has_a_fencing_counter() {
    let bed = Bed::new().await;
    bed.client.fenced("a").lock().await.unwrap().unlock().await.unwrap();
    let _guard = bed.client.reentrant("a").lock().await.unwrap();
    for words in [&["inspect", "a"][..], &["list"], &["unlock", "a", "--force"]] {
        let ran = bed.run(words).await;
        assert!(ran.code == Some(0) && ran.out.contains("reentrant or fenced"), "{ran:?}");
    }
}

#[tokio::test]
async fn unlock_uses_the_given_flavour() {
    let bed = Bed::new().await;
    let guard = bed.client.rw("a").read().lock().await.unwrap();
    let ran = bed.run(&["unlock", "a", "--force", "--flavour", "write"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(bed.client.rw("a").read().is_held_by(guard.owner()).await.unwrap());
    let ran = bed.run(&["unlock", "a", "--force", "--flavour", "no-flavour"]).await;
    assert_eq!(ran.code, Some(64), "{ran:?}");
}
