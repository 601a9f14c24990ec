//! Multi locks that are acquired by one command for all names: the reply is lost, or late.

use crate::prelude::*;

/// The undo runs long before the leases end. A late copy of the acquire arrives after the undo, and is undone too.
#[test]
fn multi_lock_acquire_with_lost_reply_leaves_no_keys() {
    let late = ms(600);
    each([Mishap::LoseReply, Mishap::SwallowReply, Mishap::LateOnly(late)], async move |mishap| {
        let server = SimServer::new(1);
        let us = Party::new(&server, LinkOptions { timeout: ms(500), ..LinkOptions::default() }, |options| {
            options.command_timeout = ms(1000);
        });
        let lock = us.client.multi(["a", "b", "c"]);
        us.link.plan_next(mishap.clone());
        let guard = lock.try_lock().await;
        let held = matches!(guard, Ok(Some(_)));
        assert!(held || guard.as_ref().is_err_and(Error::outcome_unknown), "{guard:?}");
        drop(guard);
        sleep(late).await;
        settled(&server, &[&us], Duration::from_secs(10)).await.unwrap_or_else(|left| panic!("{left}"));
    });
}

/// A lease counts from the time before sending, even over a slow network.
#[test]
fn multi_lock_leases_count_from_before_sending() {
    virtually(async || {
        let server = SimServer::new(1);
        let far = way(ms(150));
        let us = Party::new(&server, far, |_| {});
        let guard = us.client.multi(["a", "b"]).lock_leased(ms(2000)).await.unwrap();
        let has = server.pttl(b"a").min(server.pttl(b"b")) + 1;
        assert!(guard.remaining() <= ms(has as u64), "counts on {:?}, the server has {has} ms", guard.remaining());
    });
}
