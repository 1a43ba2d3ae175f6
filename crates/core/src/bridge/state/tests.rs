use super::*;
use crate::time::Timestamp;

use BridgeState as S;

const T0: Timestamp = Timestamp::EPOCH;

fn sending(n: u32) -> S {
    S::Sending { n, until: T0 }
}

fn states() -> [S; 14] {
    [
        S::AwaitingApproval,
        S::Ready,
        sending(2),
        S::SendUnknown { since: T0 },
        S::Working,
        S::InputRequired,
        S::AuthRequired,
        S::Completed,
        S::Failed,
        S::Rejected,
        S::CanceledByPeer,
        S::CanceledByUs,
        S::TimedOut,
        S::Denied,
    ]
}

const SHOWN: [Shown; 7] = [
    Shown::Working,
    Shown::InputRequired,
    Shown::AuthRequired,
    Shown::Completed,
    Shown::Failed,
    Shown::Rejected,
    Shown::Canceled,
];

fn events() -> Vec<Event> {
    let mut all = vec![
        Event::Approved,
        Event::Refused,
        Event::NeedsApproval,
        Event::Leased { n: 3, until: T0 },
        Event::Retry { n: 2 },
        Event::Retry { n: 1 },
        Event::Lost { n: 2, at: T0 },
        Event::Lost { n: 1, at: T0 },
        Event::Resend,
        Event::NextTurn,
        Event::AnswerLost,
        Event::Cancel,
        Event::Deadline,
        Event::GiveUp,
    ];
    all.extend(SHOWN.map(Event::Shown));
    all
}

/// The table as it is meant, one line per event: a letter per state that isn't terminal, in the order
/// AwaitingApproval, Ready, Sending(2), SendUnknown, Working, InputRequired, AuthRequired.
/// `.` is illegal; A R S U W I Q are those states; C F J P X T D are Completed, Failed, Rejected,
/// CanceledByPeer, CanceledByUs, TimedOut, Denied.
const TABLE: [(&str, &str); 21] = [
    ("approved", "R......"),
    ("refused", "DD....."),
    ("needs approval", "AA....."),
    ("leased", "SS....."),
    ("retry 2", "ARRUWIQ"),
    ("retry 1", "ARSUWIQ"),
    ("lost 2", "ARUUWIQ"),
    ("lost 1", "ARSUWIQ"),
    ("resend", "...R..."),
    ("next turn", ".....R."),
    ("answer lost", "IIII..."),
    ("cancel", "XXXXXXX"),
    ("deadline", "TTTTTTT"),
    ("give up", "FFFFFFF"),
    ("working", "..WWWWW"),
    ("input required", "..IIIII"),
    ("auth required", "..QQQQQ"),
    ("completed", "..CCCCC"),
    ("failed", "..FFFFF"),
    ("rejected", "..JJJJJ"),
    ("canceled", "..PPPPP"),
];

fn letter(result: Result<S, Illegal>) -> char {
    match result {
        Err(_) => '.',
        Ok(S::AwaitingApproval) => 'A',
        Ok(S::Ready) => 'R',
        Ok(S::Sending { .. }) => 'S',
        Ok(S::SendUnknown { .. }) => 'U',
        Ok(S::Working) => 'W',
        Ok(S::InputRequired) => 'I',
        Ok(S::AuthRequired) => 'Q',
        Ok(S::Completed) => 'C',
        Ok(S::Failed) => 'F',
        Ok(S::Rejected) => 'J',
        Ok(S::CanceledByPeer) => 'P',
        Ok(S::CanceledByUs) => 'X',
        Ok(S::TimedOut) => 'T',
        Ok(S::Denied) => 'D',
    }
}

#[test]
fn each_state_takes_each_event_as_the_table_says() {
    assert_eq!(events().len(), TABLE.len());
    for (event, (name, row)) in events().into_iter().zip(TABLE) {
        let got: String =
            states().into_iter().filter(|s| !s.is_terminal()).map(|s| letter(s.on(event))).collect();
        assert_eq!(got, row, "{name}");
    }
}

#[test]
fn a_terminal_state_takes_every_event_and_stays() {
    for state in states().into_iter().filter(|s| s.is_terminal()) {
        for event in events() {
            assert_eq!(state.on(event), Ok(state), "{event:?}");
        }
    }
}

#[test]
fn only_a_lease_leads_to_sending() {
    for state in states().into_iter().filter(|s| !matches!(s, S::Sending { .. })) {
        for event in events() {
            let sends = matches!(state.on(event), Ok(S::Sending { .. }));
            assert!(!sends || matches!(event, Event::Leased { .. }), "{state:?} {event:?}");
        }
    }
    assert_eq!(S::Ready.on(Event::Leased { n: 7, until: T0 }), Ok(sending(7)));
}

#[test]
fn the_words_of_an_older_attempt_move_nothing() {
    for event in [Event::Retry { n: 1 }, Event::Lost { n: 1, at: Timestamp::NEVER }] {
        assert_eq!(sending(2).on(event), Ok(sending(2)));
    }
    let since = S::SendUnknown { since: T0 };
    assert_eq!(since.on(Event::Lost { n: 2, at: Timestamp::NEVER }), Ok(since));
}

#[test]
fn an_illegal_event_names_the_state_and_itself() {
    let illegal = S::Working.on(Event::Resend);
    assert_eq!(illegal, Err(Illegal { state: "working", event: Event::Resend }));
    assert_eq!(illegal.unwrap_err().to_string(), "a bridge in working can't take Resend");
}

#[test]
fn each_state_has_a_word_of_its_own_and_is_terminal_parked_or_neither() {
    let words: std::collections::BTreeSet<_> = states().iter().map(|s| s.as_str()).collect();
    assert_eq!(words.len(), states().len());
    assert_eq!(states().iter().filter(|s| s.is_terminal()).count(), 7);
    assert_eq!(states().iter().filter(|s| s.is_parked()).count(), 3);
    assert!(!states().iter().any(|s| s.is_parked() && s.is_terminal()));
}
