// SPDX-License-Identifier: GPL-2.0

//! The state of a leg of a running mirror, and the step that the leg needs.

use schemars::JsonSchema;
use serde::Serialize;

use super::array::MemberState;
use super::superblock::Found;

/// The facts that decide the state of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The leg's state in the array; `None` if the leg is outside of the array.
    pub member: Option<MemberState>,
    /// Whether the leg's disk is mapped, and open at the server.
    pub is_open: bool,
    /// Whether the server may still be at work on requests that took too long. Until the server has
    /// sent their responses, requests of the disk fail at once.
    pub hangs: bool,
    /// Whether the leg has to be filled as a whole.
    pub fill: bool,
    /// Whether another leg is filled to replace this leg.
    pub leaving: bool,
    /// The leg's superblock, compared with the array.
    pub content: Content,
}

/// The superblock of a leg outside of the array, compared with the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The superblock was not read.
    Unread,
    /// The disk is no leg of this mirror.
    Foreign,
    /// The leg took part in the array until it went away, and the array has gone on without it.
    Behind,
    /// The leg has gone on without the array.
    Diverged,
}

impl Content {
    /// Compares a leg with the running array. `uuid` is the array's; `places` are the places of the
    /// legs that have data, and `events` is their highest event count.
    pub fn of(found: &Found, uuid: &str, places: &[u16], events: u64) -> Self {
        let Found::Superblock(leg) = found else {
            return Self::Foreign;
        };
        if leg.array != uuid {
            return Self::Foreign;
        }
        let knows = places.iter().any(|place| leg.active.contains(place));
        // With equal counts nothing was written since. A leg that went on alone has noted that the
        // legs of the array take part no longer.
        match knows && leg.events <= events {
            true => Self::Behind,
            false => Self::Diverged,
        }
    }
}

/// The state of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LegState {
    /// The leg has all data.
    InSync,
    /// The leg is being filled, or waits to be filled.
    Filling,
    /// The leg has all data but for blocks that its disk could not store.
    BadBlocks,
    /// The leg has failed, and is still in the array.
    Failed,
    /// The leg is outside of the array, and another leg replaces it.
    Replaced,
    /// The leg's disk is not mapped, or not open.
    Away,
    /// The server has not sent the responses to requests that took too long.
    Hangs,
    /// The leg is outside of the array, and lacks the writes of that time.
    Behind,
    /// The leg is outside of the array, and is to be filled as a whole.
    ToFill,
    /// The leg has gone on without the mirror: an administrator has to say which data counts.
    Diverged,
    /// The disk is no leg of this mirror.
    Foreign,
    /// The leg is outside of the array, and its superblock was not read.
    Outside,
}

impl LegState {
    /// Returns the state as a word, which JSON has, too.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InSync => "in-sync",
            Self::Filling => "filling",
            Self::BadBlocks => "bad-blocks",
            Self::Failed => "failed",
            Self::Replaced => "replaced",
            Self::Away => "away",
            Self::Hangs => "hangs",
            Self::Behind => "behind",
            Self::ToFill => "to-fill",
            Self::Diverged => "diverged",
            Self::Foreign => "foreign",
            Self::Outside => "outside",
        }
    }

    /// Returns the state of a leg with these facts.
    pub fn of(facts: &Facts) -> Self {
        match (facts.member, facts.content) {
            (Some(MemberState::InSync), _) => Self::InSync,
            (Some(MemberState::Filling), _) => Self::Filling,
            (Some(MemberState::BadBlocks), _) => Self::BadBlocks,
            (Some(MemberState::Faulty), _) => Self::Failed,
            (None, _) if facts.leaving => Self::Replaced,
            (None, _) if !facts.is_open => Self::Away,
            (None, _) if facts.hangs => Self::Hangs,
            (None, _) if facts.fill => Self::ToFill,
            (None, Content::Behind) => Self::Behind,
            (None, Content::Diverged) => Self::Diverged,
            (None, Content::Foreign) => Self::Foreign,
            (None, Content::Unread) => Self::Outside,
        }
    }

    /// Returns the step that a leg in this state needs while the mirror runs; `None` if the leg
    /// needs no step, or no step would help.
    pub fn step(self) -> Option<Step> {
        match self {
            // A leg can be added again only after it was taken out of the array.
            Self::Failed => Some(Step::Remove),
            Self::BadBlocks => Some(Step::TakeOut),
            Self::Behind => Some(Step::ReAdd),
            Self::ToFill => Some(Step::Fill),
            Self::InSync
            | Self::Filling
            | Self::Replaced
            | Self::Away
            | Self::Hangs
            | Self::Diverged
            | Self::Foreign
            | Self::Outside => None,
        }
    }
}

/// A step that brings a leg back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take the leg out of the array, which has failed.
    Remove,
    /// Take the leg out of the array though it works, and have it filled as a whole: only another
    /// leg has the blocks that this leg could not store.
    TakeOut,
    /// Add the leg, and copy the data that it lacks; all data if md cannot tell.
    ReAdd,
    /// Add the leg, and copy all data.
    Fill,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::superblock;

    const HERE: Facts = Facts {
        member: None,
        is_open: true,
        hangs: false,
        fill: false,
        leaving: false,
        content: Content::Behind,
    };

    #[test]
    fn what_a_leg_needs() {
        use MemberState::*;
        let with = |content| Facts { content, ..HERE };
        for (facts, state, step) in [
            (
                Facts {
                    member: Some(InSync),
                    ..HERE
                },
                LegState::InSync,
                None,
            ),
            // md does not know yet that the path is lost.
            (
                Facts {
                    member: Some(InSync),
                    is_open: false,
                    ..HERE
                },
                LegState::InSync,
                None,
            ),
            (
                Facts {
                    member: Some(Filling),
                    fill: true,
                    ..HERE
                },
                LegState::Filling,
                None,
            ),
            (
                Facts {
                    member: Some(Faulty),
                    ..HERE
                },
                LegState::Failed,
                Some(Step::Remove),
            ),
            (
                Facts {
                    member: Some(Faulty),
                    is_open: false,
                    ..HERE
                },
                LegState::Failed,
                Some(Step::Remove),
            ),
            (
                Facts {
                    is_open: false,
                    ..HERE
                },
                LegState::Away,
                None,
            ),
            (
                Facts {
                    is_open: false,
                    fill: true,
                    ..HERE
                },
                LegState::Away,
                None,
            ),
            (
                Facts {
                    hangs: true,
                    ..HERE
                },
                LegState::Hangs,
                None,
            ),
            (
                Facts {
                    hangs: true,
                    fill: true,
                    ..HERE
                },
                LegState::Hangs,
                None,
            ),
            (
                Facts {
                    fill: true,
                    ..with(Content::Foreign)
                },
                LegState::ToFill,
                Some(Step::Fill),
            ),
            (
                Facts {
                    fill: true,
                    ..with(Content::Diverged)
                },
                LegState::ToFill,
                Some(Step::Fill),
            ),
            (
                Facts {
                    member: Some(BadBlocks),
                    ..HERE
                },
                LegState::BadBlocks,
                Some(Step::TakeOut),
            ),
            (
                Facts {
                    member: Some(InSync),
                    leaving: true,
                    ..HERE
                },
                LegState::InSync,
                None,
            ),
            (
                Facts {
                    leaving: true,
                    ..HERE
                },
                LegState::Replaced,
                None,
            ),
            (HERE, LegState::Behind, Some(Step::ReAdd)),
            (with(Content::Diverged), LegState::Diverged, None),
            (with(Content::Foreign), LegState::Foreign, None),
            (with(Content::Unread), LegState::Outside, None),
        ] {
            let found = LegState::of(&facts);
            assert_eq!((found, found.step()), (state, step), "{facts:?}");
        }
    }

    #[test]
    fn a_leg_that_has_gone_on_is_not_taken_for_one_that_is_behind() {
        let uuid = "ab".repeat(16);
        let leg = |events, roles: &[u16]| {
            superblock::parse(&superblock::tests::bytes(1, events, 1, roles))
        };
        for (found, content) in [
            // The leg went away when the array had the event count 5.
            (leg(5, &[0, 1]), Content::Behind),
            (leg(9, &[0, 1]), Content::Behind),
            (leg(10, &[0, 1]), Content::Behind),
            // The leg has a higher event count than the array.
            (leg(11, &[0, 1]), Content::Diverged),
            (leg(99, &[0, 1]), Content::Diverged),
            // The leg went on without leg 0, which the array has.
            (leg(5, &[0xfffe, 1]), Content::Diverged),
            (Found::Nothing, Content::Foreign),
            (Found::Damaged("x"), Content::Foreign),
        ] {
            assert_eq!(Content::of(&found, &uuid, &[0], 10), content, "{found:?}");
        }
        assert_eq!(
            Content::of(&leg(5, &[0, 1]), "00", &[0], 10),
            Content::Foreign
        );
    }
}
