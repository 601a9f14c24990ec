//! Announcements whose command or reply is lost.

use bed::fault::brisk;
use bed::harm::{ACTIONS, runs};
use bed::{becomes, ends, idle};

use crate::elections;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_whose_announcement_is_in_doubt_is_seen_or_does_not_lead() {
    elections(async |bed| {
        let direct = bed.client().await;
        for (n, action) in ACTIONS.into_iter().enumerate() {
            let (proxy, name) = (bed.proxy(), format!("reports{n}"));
            let client = bed.connect(brisk(&proxy.url())).await;
            let observer = direct.observe(&name);
            client.lead(&name).next().await.unwrap().resign().await.unwrap();
            let armed = proxy.on_request(runs(&["lead/announce"]), action);
            let outcome = client.lead(&name).payload("one").next().await;
            ends(&format!("{action:?}: the fault"), armed.fired()).await;
            match outcome {
                Ok(term) => {
                    let leader = observer.current().await.unwrap().expect("a leader");
                    assert_eq!((leader.epoch, leader.text()), (term.epoch(), Some("one")), "{action:?}");
                    term.resign().await.unwrap_or_else(|error| panic!("{action:?}: {error:?}"));
                }
                Err(error) => {
                    assert!(error.is_retryable(), "{action:?}: {error:?}");
                    idle(&client).await;
                }
            }
            becomes(&format!("{action:?}: the leader"), None, async || observer.current().await.unwrap()).await;
        }
    })
    .await;
}
