//! A server as a node of a cluster: the commands it runs, redirects and refusals, ended subscriptions, replication.

use bytes::Bytes;
use tokio::time::Instant;

use super::commands::{self, Words};
use super::core::{Core, PAST, ends};
use super::events::What;
use super::lua::{self, Word};
use super::place::{Gossip, Place, Refusal};
use super::reply::{self, SimReply};
use distlock::transport::{Arg, Call, Fault, FaultKind};

impl Core {
    /// Returns the reply to a command about the cluster, or the redirect for a command that this node does not serve.
    /// `None` if the caller has to run the command.
    pub(super) fn of_cluster(&mut self, index: usize, call: &Call) -> Option<Result<SimReply, Fault>> {
        let asking = std::mem::take(&mut self.lines[index].asking);
        let word = |at: usize| match call.words.get(at) {
            Some(Arg::Text(text)) => text.clone(),
            Some(Arg::Int(int)) => Bytes::from(int.to_string()),
            None => Bytes::new(),
        };
        self.store.place.as_mut()?.client = Some(asking);
        let place = self.store.place.as_deref()?;
        let text = |text: String| Some(Ok(SimReply::Text(Bytes::from(text))));
        match call.script.command {
            Some("CLUSTER") if &*word(0) == b"NODES" => return text(place.nodes()),
            Some("CLUSTER") => return text(place.info()),
            Some("PUBSUB") => return Some(Ok(SimReply::List(Vec::new()))),
            Some("ASKING") => {
                self.lines[index].asking = true;
                return Some(Ok(SimReply::ok()));
            }
            _ => {}
        }
        let channel = (call.script.command == Some("SPUBLISH")).then(|| word(0));
        let keys: Vec<Bytes> = (0..call.keys).map(word).collect();
        let refusal = self.store.route(channel.as_deref(), keys.iter().map(|key| &**key)).err()?;
        tracing::trace!(link = index, script = call.script.name, ?refusal, "the server sent it away");
        Some(Err(reply::refused(place.text(refusal))))
    }

    /// Runs one command of a client, given as words. `EVAL` is supported.
    pub(super) fn command_of_client(&mut self, asking: bool, words: &[&[u8]]) -> SimReply {
        let name = words.first().copied().unwrap_or_default();
        let counted = words.get(2).and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
        let script = name.eq_ignore_ascii_case(b"eval").then_some(counted).flatten();
        let (bytes, ends) = (words.concat(), ends(words));
        let split = Words::new(&bytes, &ends);
        if let Some(place) = self.store.place.as_mut() {
            place.client = Some(asking);
        }
        let outcome = match script {
            Some(count) => self.store.route(None, words.iter().skip(3).take(count).copied()),
            None => self.store.route(commands::channel(&split), commands::keys(&split)),
        };
        if let Err(refusal) = outcome {
            let text = self.place().text(refusal);
            self.end_of_command();
            return SimReply::Error(text);
        }
        let reply = match script {
            Some(count) => {
                let (keys, args) = words[3..].split_at(count.min(words.len() - 3));
                let source = String::from_utf8_lossy(words[1]);
                let sha = Bytes::from(lua::sha1hex(words[1]));
                let (keys, args) = (keys.iter().map(|word| Word::Text(word)), args.iter().map(|word| Word::Text(word)));
                lua::eval(&mut self.store, &sha, &source, keys, args)
            }
            None => commands::direct(&mut self.store, &split),
        };
        self.end_of_command();
        reply
    }

    /// Notes that a client's command has ended, and copies the writes of the command to the replica.
    pub(super) fn end_of_command(&mut self) {
        if let Some(place) = &mut self.store.place {
            place.client = None;
        }
        self.note();
    }

    /// Returns the redirect for a channel that this node does not serve.
    pub(super) fn refuses(&self, channel: &[u8]) -> Option<Fault> {
        let place = self.store.place.as_deref()?;
        let refusal: Refusal = place.route_channel(channel).err()?;
        Some(Fault::new(FaultKind::Refused, place.text(refusal)))
    }

    /// Records the data that a replica has now, unless the replica is cut off.
    pub(super) fn note(&mut self) {
        let Some(past) = self.past.as_mut().filter(|_| !self.unreplicated) else { return };
        if past.back() != Some(self.store.all()) {
            past.push_back(self.store.all().clone());
            if past.len() > PAST + 1 {
                past.pop_front();
            }
        }
    }

    pub(super) fn place(&mut self) -> &mut Place {
        self.store.place.as_mut().expect("a node of a cluster has a place in it from its making on")
    }

    pub(super) fn tell_of_end(&mut self, index: usize, channel: Bytes, now: Instant) {
        let line = &mut self.lines[index];
        let at = (now + line.latency()).max(line.last_message.unwrap_or(now));
        line.last_message = Some(at);
        let life = line.life;
        self.schedule(at, What::Ended { line: index, life, channel });
    }

    /// Ends the subscriptions to channels that this node no longer serves.
    pub(super) fn end_subscriptions(&mut self, now: Instant) {
        for index in 0..self.lines.len() {
            let ended: Vec<Bytes> = self.lines[index]
                .subscriptions
                .iter()
                .filter(|channel| self.refuses(channel).is_some())
                .cloned()
                .collect();
            for channel in ended {
                self.lines[index].subscriptions.remove(&channel);
                if self.lines[index].connected {
                    self.leave(&channel);
                    self.tell_of_end(index, channel, now);
                }
            }
        }
    }

    /// Applies the news of another node, or of the cluster.
    pub(super) fn hear(&mut self, gossip: Gossip, now: Instant) {
        if self.down {
            return;
        }
        if self.frozen.is_some() {
            self.unheard.push(gossip);
            return;
        }
        if self.place().hear(&gossip) {
            // This node is a replica of the other node now, and has no data of its own.
            self.store.clear();
        }
        self.end_subscriptions(now);
    }
}
