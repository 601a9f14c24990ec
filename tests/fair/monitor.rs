//! The history of a queue, from the server's `MONITOR`, which includes commands inside scripts.

use distlock_support::RedisServer;

use crate::rig::queue_key;
use bed::Bed;
use bed::wire::Wire;

pub struct Monitor(Wire);

impl Monitor {
    pub async fn start(server: &RedisServer) -> Self {
        Self(Wire::hear(server, &["rpush", "lpop", "lrem", "hset"]).await)
    }

    pub async fn story(&self, bed: &Bed, name: &str) -> Story {
        Story::read(&self.0.calls(bed).await, name)
    }
}

/// The history of a lock. The lists may contain an owner several times.
#[derive(Debug, Default)]
pub struct Story {
    /// Owners that took a place, in order.
    pub arrived: Vec<String>,
    /// Owners that were granted the lock, in order.
    pub granted: Vec<String>,
    pub left: Vec<String>,
    pub purged: Vec<String>,
    /// Owners that were granted the lock while another owner was the head of the queue.
    pub jumped: Vec<String>,
    /// Owners that are still in the queue.
    pub waiting: Vec<String>,
}

impl Story {
    fn read(commands: &[Vec<String>], name: &str) -> Self {
        let (queue, mut story, mut entering) = (queue_key(name), Self::default(), None);
        for words in commands {
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            match words[..] {
                ["rpush", key, owner] if key == queue => {
                    story.arrived.push(owner.to_owned());
                    story.waiting.push(owner.to_owned());
                }
                ["hset", key, owner, count, ..] if key == name => {
                    assert_eq!(count, "1", "nobody comes in again here");
                    if story.waiting.first().is_some_and(|head| head != owner) {
                        story.jumped.push(owner.to_owned());
                    }
                    story.granted.push(owner.to_owned());
                    entering = Some(owner.to_owned());
                }
                ["lpop", key] if key == queue => {
                    let head = story.waiting.remove(0);
                    if entering.take().as_deref() != Some(&head) {
                        story.purged.push(head);
                    }
                }
                ["lrem", key, _, owner] if key == queue => {
                    let at = story.waiting.iter().rposition(|other| other == owner).unwrap();
                    story.left.push(story.waiting.remove(at));
                }
                _ => {}
            }
        }
        story
    }
}

pub fn client_of(owner: &str) -> &str {
    owner.rsplit_once(':').map_or(owner, |(client, _)| client)
}
