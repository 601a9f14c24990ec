//! A sorted set, as a vector in Redis' order (score, then member). A vector suffices, because the queues of locks are
//! short.

use std::cmp::Ordering;

use bytes::Bytes;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Zset(Vec<(f64, Bytes)>);

/// One end of a score range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) score: f64,
    pub(super) open: bool,
}

impl Bound {
    /// Parses a bound such as `1`, `(1`, `-inf` or `+inf`.
    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        let (open, rest) = match word.strip_prefix(b"(") {
            Some(rest) => (true, rest),
            None => (false, word),
        };
        // Unlike a score, a bound is parsed by C's plain `strtod`: leading blanks are skipped, and an empty text is
        // 0. A text of blanks only is refused.
        let score = if rest.is_empty() { 0.0 } else { super::number::float(rest.trim_ascii_start())? };
        Some(Self { score, open })
    }
}

impl Zset {
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.0.iter().find(|(_, m)| m == member).map(|(score, _)| *score)
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<usize> {
        self.0.iter().position(|(_, m)| m == member)
    }

    pub(super) fn set(&mut self, member: &[u8], score: f64) {
        let member = match self.rank(member) {
            Some(at) => self.0.remove(at).1,
            None => Bytes::copy_from_slice(member),
        };
        let before = |(s, m): &(f64, Bytes)| match s.partial_cmp(&score) {
            Some(Ordering::Less) => true,
            Some(Ordering::Equal) | None => m < &member,
            Some(Ordering::Greater) => false,
        };
        let at = self.0.partition_point(before);
        self.0.insert(at, (score, member));
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        self.rank(member).map(|at| self.0.remove(at)).is_some()
    }

    pub(super) fn all(&self) -> &[(f64, Bytes)] {
        &self.0
    }

    /// Returns the members with a score between both bounds.
    pub(super) fn within(&self, min: Bound, max: Bound) -> &[(f64, Bytes)] {
        let low = |s: f64| if min.open { s <= min.score } else { s < min.score };
        let fits = |s: f64| if max.open { s < max.score } else { s <= max.score };
        let from = self.0.partition_point(|(s, _)| low(*s));
        let to = self.0.partition_point(|(s, _)| low(*s) || fits(*s));
        &self.0[from..to.max(from)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_ordered_by_current_score_then_member() {
        let mut zset = Zset::default();
        zset.set(b"b", 1.0);
        zset.set(b"a", 1.0);
        zset.set(b"c", 0.0);
        zset.set(b"c", 2.0);
        let order: Vec<&[u8]> = zset.all().iter().map(|(_, m)| m.as_ref()).collect();
        assert_eq!(order, [b"a", b"b", b"c"]);
        let open = Bound { score: 1.0, open: true };
        let end = Bound { score: f64::INFINITY, open: false };
        assert_eq!(zset.within(open, end).len(), 1);
        assert_eq!(zset.within(end, open).len(), 0);
    }
}
