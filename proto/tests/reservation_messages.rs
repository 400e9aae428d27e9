// SPDX-License-Identifier: GPL-2.0

//! The messages of persistent reservations.

use proto::{
    rnbd::{
        BlockOp,
        Command,
        CommandError,
        Host,
        Io,
        IoFlags,
        Kind,
        Op,
        Request,
        Reservation,
        Rw,
        FEATURE_RESERVATIONS, //
    },
    Errno,
    ProtoError, //
};

#[test]
fn commands_are_messages() {
    let kind = Kind::ExclusiveAccessRegistrants;
    let commands = [
        (
            Command::Register {
                key: 1,
                new: 2,
                ignore_key: false,
            },
            [0, 0, 0, 0],
            2,
        ),
        (
            Command::Register {
                key: 1,
                new: 2,
                ignore_key: true,
            },
            [0, 0, 1, 0],
            2,
        ),
        (Command::Reserve { key: 1, kind }, [1, 4, 0, 0], 0),
        (Command::Release { key: 1, kind }, [2, 4, 0, 0], 0),
        (Command::Clear { key: 1 }, [3, 0, 0, 0], 0),
        (
            Command::Preempt {
                key: 1,
                victim: 9,
                kind,
            },
            [4, 4, 0, 0],
            9,
        ),
    ];
    for (command, middle, service_key) in commands {
        for abort in [false, true] {
            let message = Reservation::of(0x0403_0201, 0x0807_0605, &command, abort);
            let bytes = message.to_bytes();
            let mut wanted = vec![10, 0, 0, 0, 1, 2, 3, 4];
            wanted.extend(middle);
            if abort && matches!(command, Command::Preempt { .. }) {
                wanted[8] = 5;
            }
            wanted.extend([5, 6, 7, 8, 1, 0, 0, 0, 0, 0, 0, 0]);
            wanted.extend([service_key, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(bytes.as_slice(), wanted, "{command:?}");
            let parsed = Request::parse(&bytes, FEATURE_RESERVATIONS);
            assert_eq!(parsed, Ok(Request::Reservation(message)));
            assert_eq!(message.command(), Ok(Some(command)));
        }
    }
    assert_eq!(Reservation::report(1).command(), Ok(None));
}

#[test]
fn a_number_stands_for_one_command() {
    let kind = Kind::WriteExclusive;
    let command = Command::Reserve { key: 1, kind };
    let first = Reservation::of(1, 7, &command, false);
    assert_eq!(first.repeats(&first), Ok(true));
    assert_eq!(
        Reservation::of(1, 8, &command, false).repeats(&first),
        Ok(false)
    );
    for other in [
        Reservation { key: 2, ..first },
        Reservation { kind: 2, ..first },
        Reservation { action: 2, ..first },
        Reservation { flags: 1, ..first },
        Reservation {
            service_key: 1,
            ..first
        },
    ] {
        let error = CommandError::Sequence(7);
        assert_eq!(other.repeats(&first), Err(error));
        assert_eq!(error.errno(), Errno::EINVAL);
        assert!(error.message().as_str().contains('7'));
    }
}

#[test]
fn an_empty_write_that_flushes_is_allowed_as_a_flush() {
    let write = |flags, bi_size| Io {
        sector: 0,
        device_id: 1,
        rw: Rw {
            op: Op::Write,
            flags,
        },
        bi_size,
        prio: 0,
    };
    let flushes = write(IoFlags::PREFLUSH, 0);
    assert_eq!(flushes.block_op(false, 0), Ok(BlockOp::Flush));
    assert_eq!(flushes.op_for_access(0), Op::Flush);
    for (io, data_len) in [
        (write(IoFlags::PREFLUSH, 4096), 4096),
        (write(IoFlags::PREFLUSH, 0), 512),
        (write(IoFlags::FUA, 0), 0),
        (write(IoFlags::NONE, 4096), 4096),
    ] {
        assert_eq!(io.op_for_access(data_len), Op::Write);
        assert_ne!(io.block_op(false, data_len), Ok(BlockOp::Flush));
    }
}

#[test]
fn messages_that_make_no_sense_are_refused() {
    let kind = Kind::WriteExclusive;
    let good = Reservation::of(1, 1, &Command::Reserve { key: 1, kind }, false);
    let bytes = good.to_bytes();
    let what = "RNBD message";
    for features in [0, !FEATURE_RESERVATIONS] {
        let unknown = Err(ProtoError::BadType { what, found: 10 });
        assert_eq!(Request::parse(&bytes, features), unknown);
    }
    for len in 0..bytes.len() {
        let result = Request::parse(&bytes[..len], FEATURE_RESERVATIONS);
        assert!(matches!(result, Err(ProtoError::TooShort { .. })), "{len}");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    let result = Request::parse(&longer, FEATURE_RESERVATIONS);
    assert!(matches!(result, Err(ProtoError::BadField { .. })));
    let errors = [
        (Reservation { action: 7, ..good }, CommandError::Action(7)),
        (Reservation { kind: 0, ..good }, CommandError::Kind(0)),
        (Reservation { kind: 7, ..good }, CommandError::Kind(7)),
        (Reservation { flags: 1, ..good }, CommandError::Flags(1)),
        (
            Reservation {
                action: 0,
                flags: Reservation::PERSIST,
                ..good
            },
            CommandError::Flags(2),
        ),
    ];
    for (message, error) in errors {
        assert_eq!(message.command(), Err(error));
        let wanted = if matches!(error, CommandError::Kind(_)) {
            Errno::EINVAL
        } else {
            Errno::EOPNOTSUPP
        };
        assert_eq!(error.errno(), wanted);
        assert!(!error.message().as_str().is_empty());
    }
}

#[test]
fn a_machine_is_a_uuid() {
    let text = "01234567-89ab-cdef-0123-456789ABCDEF";
    let host = Host::from_text(text.as_bytes()).unwrap();
    assert_eq!(host.to_string(), text.to_lowercase());
    let bytes = host.to_bytes();
    assert_eq!(bytes[..9], [9, 0, 0, 0, 0, 0, 0, 0, 0x01]);
    assert_eq!(bytes[23], 0xef);
    let parsed = Request::parse(&bytes, FEATURE_RESERVATIONS);
    assert_eq!(parsed, Ok(Request::Host(host)));
    assert!(Request::parse(&bytes, !FEATURE_RESERVATIONS).is_err());
    let mut nil = bytes;
    nil[8..].fill(0);
    assert!(Request::parse(&nil, FEATURE_RESERVATIONS).is_err());
    for text in [
        "",
        "0123456789abcdef0123456789abcdef",
        "01234567-89ab-cdef-0123-456789abcde",
        "01234567-89ab-cdef-0123-456789abcdef ",
        "01234567-89ab-cdef-0123-456789abcdeg",
        "0123456-789ab-cdef-0123-456789abcdef",
        "01234567-89ab-cdef-0123-4567-9abcdef",
        "00000000-0000-0000-0000-000000000000",
    ] {
        assert_eq!(Host::from_text(text.as_bytes()), None, "{text}");
    }
}
