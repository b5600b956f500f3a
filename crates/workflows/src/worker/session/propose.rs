//! What a message of a worker proposes, and the command that it becomes. The message is saved in the transaction of what it did.

use holdpoint_state::effects::EffectStart;

use super::{Answered, Frame, Refused, Session};
use crate::commands::{self, Advanced, Begun, FinishedAttempt, Move, Plan, Said};
use crate::engine::{Direct, Stop};
use crate::error::WorkflowError;
use crate::routing::NodeOutcome;
use crate::views;
use crate::worker::host::{End, Progress};
use crate::worker::message::{
    AskDocument, AskSettings, GaveUp, LoadFailed, Nothing, PROTOCOL, Ready, Rejected, Reply,
    SaidBudget, SaidPlan, SaidStep, SaidUpdate, SaidWait, worker,
};

impl Session<'_> {
    /// Does what a message proposes.
    pub(super) fn answer(&mut self, frame: &Frame, said: &Said) -> Result<Answered, Refused> {
        let kind = frame.header.kind.as_str();
        if (kind == worker::READY) != (self.progress == Progress::None) {
            return Err(Refused::Lie(
                "a worker is ready once, and before it says anything else".to_owned(),
            ));
        }
        let begins = self.progress == Progress::Ready;
        match kind {
            worker::READY => {
                let Ready { protocol } = frame.parse()?;
                if protocol != PROTOCOL {
                    return Err(Refused::Lie(format!("it speaks protocol {protocol}")));
                }
                let (db, claim) = (self.supervision.db, &self.supervision.active.claim);
                commands::worker_ready(db, claim, &said.epoch, self.process.clone())?;
                self.progress = Progress::Ready;
                Ok(Answered::On(self.noted()))
            }
            worker::LOAD_FAILED if begins => {
                let LoadFailed { error } = frame.parse()?;
                Ok(Answered::Last(self.noted(), End::LoadFailed(error)))
            }
            worker::GIVE_UP => {
                let gave_up: GaveUp = frame.parse()?;
                Ok(Answered::Last(self.noted(), End::GaveUp(gave_up)))
            }
            worker::DOCUMENT => {
                let AskDocument { hash } = frame.parse()?;
                if !self.present.may_read(hash) {
                    return Err(Refused::Lie(format!("it was not told of document {hash}")));
                }
                let snapshot = self
                    .supervision
                    .db
                    .snapshot()
                    .map_err(WorkflowError::State)?;
                let value = Some(views::document(&snapshot, hash)?);
                Ok(Answered::On(Reply::Found { value }))
            }
            worker::SETTINGS => {
                let AskSettings { mount_path } = frame.parse()?;
                if !self.present.has_mount(&mount_path) {
                    return Err(Refused::Lie(format!("there is no mount {mount_path:?}")));
                }
                let run = commands::run_of(&self.supervision.active.claim)?;
                let snapshot = self
                    .supervision
                    .db
                    .snapshot()
                    .map_err(WorkflowError::State)?;
                let value = views::present_settings(&snapshot, &run, &mount_path)?;
                Ok(Answered::On(Reply::Found { value }))
            }
            other => self.propose(frame, (other, said), begins),
        }
    }

    /// Commits what a message proposes.
    fn propose(
        &mut self,
        frame: &Frame,
        (kind, said): (&str, &Said),
        begins: bool,
    ) -> Result<Answered, Refused> {
        match kind {
            worker::BEGIN if begins && self.candidate.is_none() => {
                let plan = self.present.plan(frame.parse::<SaidPlan>()?, self.now())?;
                self.begin(plan, said)
            }
            worker::ACCEPT if begins => self.accept(frame.parse()?, said),
            worker::REJECT if begins => {
                let Rejected { message } = frame.parse()?;
                if self.candidate.is_none() {
                    return Err(Refused::Lie("there is no candidate".to_owned()));
                }
                let claim = &self.supervision.active.claim;
                let db = self.supervision.db;
                let receipt = commands::reject_candidate_said(db, claim, &message, Some(said))?;
                self.progress = Progress::Some;
                self.revision = receipt.revision;
                Ok(Answered::Last(self.noted(), End::Done))
            }
            // Its look was cut short by the stop of the host; nothing of the run changed.
            worker::HAND_OVER if begins && self.stopping.is_some() => {
                let Nothing {} = frame.parse()?;
                Ok(Answered::Last(self.noted(), End::Stopped(Stop::Drain)))
            }
            worker::ADVANCE if !begins => {
                let SaidStep { finished, next } = frame.parse()?;
                let node = finished.result.node_id.clone();
                let finished = self.present.finished(finished, self.now())?;
                let next = self.present.next(next, Some(&node))?;
                let direct = self.direct();
                let (stepped, revision) = direct.advance_said(
                    self.supervision.definition,
                    finished,
                    &next,
                    Some(said),
                )?;
                self.revision = revision;
                self.present.moved(Some(&node), &next, &stepped.advanced);
                Ok(self.moved(&next, &stepped.advanced, stepped.is_effectless))
            }
            worker::SET_TIMEOUT if !begins => {
                let SaidBudget {
                    attempt_id,
                    timeout,
                } = frame.parse()?;
                self.present.budget(timeout)?;
                let claim = &self.supervision.active.claim;
                let receipt = commands::set_timeout_said(
                    self.supervision.db,
                    claim,
                    (&attempt_id, timeout),
                    Some(said),
                )?;
                self.revision = receipt.revision;
                Ok(Answered::On(self.noted()))
            }
            worker::PUBLISH if !begins => self.publish(&frame.parse()?, said),
            worker::WAIT if !begins => {
                let (attempt, ask) = self.present.ask(frame.parse::<SaidWait>()?)?;
                let claim = &self.supervision.active.claim;
                let receipt =
                    commands::wait_said(self.supervision.db, claim, &attempt, ask, Some(said))?;
                self.revision = receipt.revision;
                Ok(Answered::Last(self.noted(), End::Done))
            }
            worker::DOUBT if !begins => {
                let Nothing {} = frame.parse()?;
                let Some(acting) = self.present.acting() else {
                    return Err(Refused::Lie("no effect may be acting".to_owned()));
                };
                let claim = &self.supervision.active.claim;
                let receipt = commands::doubt_said(self.supervision.db, claim, acting, Some(said))?;
                self.revision = receipt.revision;
                Ok(Answered::Last(self.noted(), End::Done))
            }
            worker::HAND_OVER if !begins => {
                let Nothing {} = frame.parse()?;
                let claim = &self.supervision.active.claim;
                let receipt = commands::hand_over_said(self.supervision.db, claim, Some(said))?;
                self.revision = receipt.revision;
                Ok(Answered::Last(self.noted(), End::Done))
            }
            other => Err(Refused::Lie(format!("{other:?} says nothing here"))),
        }
    }

    /// Publishes an update. One that is refused is the author's business, as on a thread: the worker goes on.
    fn publish(&mut self, update: &SaidUpdate, said: &Said) -> Result<Answered, Refused> {
        let db = self.supervision.db;
        let claim = &self.supervision.active.claim;
        let published = update
            .update()
            .map_err(|error| WorkflowError::Input {
                what: "update",
                problem: error.to_string(),
            })
            .and_then(|parsed| {
                commands::publish_said(db, claim, (&update.attempt_id, &parsed), Some(said))
            });
        match published {
            Ok(receipt) => {
                self.revision = receipt.revision;
                Ok(Answered::On(self.noted()))
            }
            Err(error) if error.is_claim_lost() => Err(error.into()),
            Err(error) => Ok(Answered::On(Reply::Refused {
                code: error.code().to_owned(),
                problem: error.to_string(),
                is_passing: error.is_retryable(),
            })),
        }
    }

    /// The candidate is the output of its attempt: the worker's first proposal.
    fn accept(&mut self, said_step: SaidStep, said: &Said) -> Result<Answered, Refused> {
        let Some(candidate) = self.candidate.take() else {
            return Err(Refused::Lie("there is no candidate".to_owned()));
        };
        let SaidStep { finished, next } = said_step;
        if finished.result.outcome != NodeOutcome::Ok
            || finished.receipt.is_some()
            || finished.prompt.is_some()
        {
            return Err(Refused::Lie(
                "a candidate is accepted with a value and nothing beside it".to_owned(),
            ));
        }
        let node = finished.result.node_id.clone();
        let finished = self.present.finished(finished, self.now())?;
        let next = self.present.next(next, Some(&node))?;
        let db = self.supervision.db;
        let (claim, definition) = (&self.supervision.active.claim, self.supervision.definition);
        let propose = |step: (FinishedAttempt, Move), said: &Said| {
            commands::accept_candidate_said(db, claim, definition, &candidate, step, Some(said))
        };
        let (next, receipt, is_effectless) = match propose((finished.clone(), next.clone()), said) {
            Err(error) if crate::engine::is_effect_conflict(&error) => {
                let next = crate::engine::effectless(next);
                let said = Said {
                    is_effectless: true,
                    ..said.clone()
                };
                let receipt = propose((finished, next.clone()), &said)?;
                (next, receipt, true)
            }
            receipt => (next, receipt?, false),
        };
        self.progress = Progress::Some;
        self.revision = receipt.revision;
        self.present.moved(Some(&node), &next, &receipt.value);
        Ok(self.moved(&next, &receipt.value, is_effectless))
    }

    fn begin(&mut self, plan: Plan, said: &Said) -> Result<Answered, Refused> {
        let db = self.supervision.db;
        let (claim, definition) = (&self.supervision.active.claim, self.supervision.definition);
        let propose = |plan: Plan, said: Said| commands::begin(db, claim, definition, plan, said);
        let (plan, begun, is_effectless) = match propose(plan.clone(), said.clone()) {
            Err(error) if crate::engine::is_effect_conflict(&error) => {
                let plan = crate::engine::without_effect(plan);
                let said = Said {
                    is_effectless: true,
                    ..said.clone()
                };
                let begun = propose(plan.clone(), said)?;
                (plan, begun, true)
            }
            begun => (plan, begun?, false),
        };
        self.progress = Progress::Some;
        self.revision = begun.revision;
        let Begun::Moved(advanced) = begun.value else {
            return Ok(Answered::Last(self.noted(), End::Done));
        };
        let finished = match &plan {
            Plan::Answered { finished, .. } | Plan::Expired { finished, .. } => {
                Some(finished.result().node_id.clone())
            }
            Plan::First { .. } | Plan::Again { .. } => None,
        };
        let next = plan.next();
        self.present.moved(finished.as_ref(), next, &advanced);
        Ok(self.moved(next, &advanced, is_effectless))
    }

    fn moved(&self, next: &Move, advanced: &Advanced, is_effectless: bool) -> Answered {
        let reply = Reply::accepted(self.now(), Some(advanced), is_effectless);
        let is_parked = matches!(advanced.effect, Some(EffectStart::Ambiguous { .. }));
        match next {
            // A settings route that has to look again ended nothing.
            _ if advanced.unsettled.is_some() => Answered::On(reply),
            Move::Start(_) if !is_parked => Answered::On(reply),
            Move::Start(_) | Move::Complete | Move::End(..) | Move::HandOver => {
                Answered::Last(reply, End::Done)
            }
        }
    }

    fn noted(&self) -> Reply {
        Reply::accepted(self.now(), None, false)
    }

    fn direct(&self) -> Direct<'_> {
        Direct {
            db: self.supervision.db,
            active: self.supervision.active,
            draining: self.supervision.draining,
        }
    }
}
