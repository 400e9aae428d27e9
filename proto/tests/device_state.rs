// SPDX-License-Identifier: GPL-2.0

//! The states of a client's device.

use proto::device_state::DeviceEvent;
use proto::device_state::DeviceState;
use proto::Errno;

#[test]
fn every_event_in_every_state_does_what_c_does() {
    use DeviceState::*;
    for &from in DeviceState::ALL {
        let opened = match from {
            Unmapped => Err(Errno::ENOENT),
            _ => Ok(Mapped),
        };
        let lost = match from {
            Mapped => Ok(Disconnected),
            other => Ok(other),
        };
        let unmap = match from {
            Unmapped => Err(Errno::EALREADY),
            _ => Ok(Unmapped),
        };
        assert_eq!(from.next(DeviceEvent::Opened), opened, "{from:?}: opened");
        assert_eq!(from.next(DeviceEvent::LinkLost), lost, "{from:?}: lost");
        assert_eq!(from.next(DeviceEvent::Unmap), unmap, "{from:?}: unmap");
    }
}

#[test]
fn only_a_disconnected_device_is_remapped() {
    let answers = DeviceState::ALL.iter().map(|state| state.check_remap());
    assert!(answers.eq([
        Err(Errno::EBUSY),
        Err(Errno::EALREADY),
        Ok(()),
        Err(Errno::ENODEV),
    ]));
}

#[test]
fn numbers_and_words() {
    for &state in DeviceState::ALL {
        assert_eq!(DeviceState::try_from(state.to_u32()), Ok(state));
    }
    assert_eq!(DeviceState::try_from(4), Err(4));
    let words = DeviceState::ALL.iter().map(|state| state.sysfs_str());
    assert!(words.eq(["init", "open", "closed", "unmapped"]));
}
