//! The holds of one owner, as `lua/common/holds.lua` counts them.

#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    pub owner: String,
    pub count: i64,
    /// Those that are listed, in the order of their acquires.
    pub ids: Vec<String>,
    /// Whose confirmations, that may replace the first lease by a shorter one, came in; '' is not listed.
    pub confirmed: Vec<String>,
    pub end: i64,
}

impl Hold {
    /// The first one of an owner; '' is not listed.
    pub fn first(owner: &str, id: &str, end: i64) -> Self {
        let ids = if id.is_empty() { Vec::new() } else { vec![id.into()] };
        Self { owner: owner.into(), count: 1, ids, confirmed: Vec::new(), end }
    }

    /// The list as it stands in the hash; none without ids.
    pub fn list(&self) -> Option<String> {
        let mark = |id: &str| if self.confirmed.iter().any(|other| other == id) { "~0" } else { "" };
        let list: String = self.ids.iter().map(|id| format!(",{id}{}", mark(id))).collect();
        Some(format!("{}{list}", mark(""))).filter(|list| !list.is_empty())
    }

    /// All of them, one `,id` each.
    pub fn all(&self) -> String {
        let unlisted = usize::try_from(self.unlisted()).unwrap_or(0);
        self.ids
            .iter()
            .map(String::as_str)
            .chain(std::iter::repeat_n("-", unlisted))
            .map(|id| format!(",{id}"))
            .collect()
    }

    /// Whether these are all.
    pub fn are_all(&self, list: &str) -> bool {
        let words: Vec<&str> = list.split(',').filter(|id| !id.is_empty()).collect();
        i64::try_from(words.len()) == Ok(self.count) && words.into_iter().all(|id| self.has(id))
    }

    /// Notes the confirmation of a hold. False when it was noted before.
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

    /// Whether an acquire of this hold is a repeat.
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

    /// Which of those that are listed a release of any hold is told to name.
    pub fn which(&self) -> Option<&str> {
        self.ids.last().filter(|_| self.unlisted() <= 0).map(String::as_str)
    }

    /// Without what a release names; none where nothing of it is there. The last hold is gone at a count of 0.
    pub fn without(&self, words: &str) -> Option<Self> {
        if words.is_empty() && self.list().is_none() {
            return Some(Self { count: 0, ids: Vec::new(), ..self.clone() });
        }
        // Of those without an id; others came to know the owner.
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
