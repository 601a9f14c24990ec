//! The owners that a scene passes to acquires, as each client knows them.

use super::plan::Sharing;
use crate::prelude::*;

pub struct Given {
    home: usize,
    sharing: Sharing,
    /// False for an owner that a client made for an acquire that named no owner.
    pub made_to_be_given: bool,
    known: Vec<Option<Owner>>,
}

impl Given {
    pub fn new(owner: Owner, home: usize, clients: usize, sharing: Sharing, made_to_be_given: bool) -> Self {
        let parsed = |n: usize| match sharing {
            Sharing::Text if n != home => Some(owner.to_string().parse().unwrap()),
            Sharing::Becoming if n != home => None,
            _ => Some(owner.clone()),
        };
        Self { home, sharing, made_to_be_given, known: (0..clients).map(parsed).collect() }
    }

    /// Replaces the owner's client by a new one, which knows only the owner's text.
    pub fn move_in(&mut self) {
        if self.sharing == Sharing::Alone {
            let text = self.known[self.home].as_ref().unwrap().to_string();
            self.known.fill(Some(text.parse().unwrap()));
        }
    }

    /// The client that acts as this owner: client `party` if it may use the owner.
    pub fn party(&self, party: usize) -> usize {
        if self.sharing == Sharing::Alone { self.home } else { party }
    }

    pub fn at(&mut self, party: usize) -> Owner {
        let home = self.known[self.home].clone().unwrap();
        self.known[party].get_or_insert_with(|| home.to_string().parse().unwrap()).clone()
    }

    pub fn text(&self) -> String {
        text(self.known[self.home].as_ref().unwrap())
    }
}
