//! The holds of one owner, as `lua/common/holds.lua` counts them.

#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    pub owner: String,
    pub count: i64,
    /// The listed holds, in the order of their acquires.
    pub ids: Vec<String>,
    /// Holds whose confirmation has arrived, which may replace the first lease by a shorter one; '' is not listed.
    pub confirmed: Vec<String>,
    pub end: i64,
}

impl Hold {
    /// The first hold of an owner; '' is not listed.
    pub fn first(owner: &str, id: &str, end: i64) -> Self {
        let ids = if id.is_empty() { Vec::new() } else { vec![id.into()] };
        Self { owner: owner.into(), count: 1, ids, confirmed: Vec::new(), end }
    }

    /// The list as written in the hash; None without ids.
    pub fn list(&self) -> Option<String> {
        let mark = |id: &str| if self.confirmed.iter().any(|other| other == id) { "~0" } else { "" };
        let list: String = self.ids.iter().map(|id| format!(",{id}{}", mark(id))).collect();
        Some(format!("{}{list}", mark(""))).filter(|list| !list.is_empty())
    }

    /// All holds, one `,id` each.
    pub fn all(&self) -> String {
        let unlisted = usize::try_from(self.unlisted()).unwrap_or(0);
        self.ids
            .iter()
            .map(String::as_str)
            .chain(std::iter::repeat_n("-", unlisted))
            .map(|id| format!(",{id}"))
            .collect()
    }

    /// True if this list names all holds.
    pub fn are_all(&self, list: &str) -> bool {
        let words: Vec<&str> = list.split(',').filter(|id| !id.is_empty()).collect();
        i64::try_from(words.len()) == Ok(self.count) && words.into_iter().all(|id| self.has(id))
    }

    /// Records the confirmation of a hold. Returns false if it was already recorded.
    pub fn confirm(&mut self, id: &str) -> bool {
        let first = !self.confirmed.iter().any(|other| other == id);
        if first {
            self.confirmed.push(id.into());
        }
        first
    }

    fn unlisted(&self) -> i64 {
        self.count - i64::try_from(self.ids.len()).unwrap()
    }

    /// True if an acquire of this hold is a repeat.
    pub fn counted(&self, id: &str) -> bool {
        id.is_empty() || self.ids.iter().any(|other| other == id)
    }

    pub fn has(&self, id: &str) -> bool {
        if id == "-" { self.unlisted() > 0 } else { self.counted(id) }
    }

    pub fn add(&mut self, id: &str) {
        self.count += 1;
        self.ids.push(id.into());
    }

    /// The listed hold that a release of any hold must name.
    pub fn which(&self) -> Option<&str> {
        self.ids.last().filter(|_| self.unlisted() <= 0).map(String::as_str)
    }

    /// The remaining holds after a release of `words`. `None` if no such hold exists. After the last release the count
    /// is 0.
    pub fn without(&self, words: &str) -> Option<Self> {
        if words.is_empty() && self.list().is_none() {
            return Some(Self { count: 0, ids: Vec::new(), ..self.clone() });
        }
        // A hold without an id, after other clients have used the owner.
        let words = if matches!(words, "*" | "") { "-" } else { words };
        let mut rest = self.clone();
        for id in words.split(',').filter(|id| !id.is_empty()) {
            if rest.has(id) {
                rest.count -= 1;
                rest.ids.retain(|other| other != id);
                rest.confirmed.retain(|other| id == "-" || other != id);
            }
        }
        (rest.count < self.count).then_some(rest)
    }
}
