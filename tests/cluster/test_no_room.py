"""How long a run waits for room in an object store, and what it tells the user."""

from penstock.cluster.no_room import HOME, PATIENCE, RETRY_S, NoRoom


def test_the_user_is_told_once_what_to_do() -> None:
    no_room = NoRoom(stall_limit_s=100.0)
    assert no_room.untold() == ""
    no_room.add("policy", HOME, 1000.0)
    no_room.add("rollouts", "10.0.0.2", 1000.0)
    assert no_room.untold() == (
        "Ray's object store on the launcher's machine is full, so the run waits for room, for at most 90 s; "
        "to have more, start Ray there with ray start --object-store-memory BYTES"
    )
    no_room.remove("policy")
    no_room.add("policy", HOME, 2000.0)
    assert no_room.untold() == ""


def test_what_found_no_room_is_tried_again_a_little_later() -> None:
    no_room = NoRoom(stall_limit_s=100.0)
    assert no_room.due("policy", 1000.0)
    no_room.add("policy", HOME, 1000.0)
    assert list(no_room) == ["policy"]
    assert not no_room.due("policy", 1000.0 + RETRY_S / 2)
    assert no_room.due("rollouts", 1000.0 + RETRY_S / 2)
    assert no_room.due("policy", 1000.0 + RETRY_S)
    no_room.add("policy", HOME, 1000.0 + RETRY_S)
    assert not no_room.due("policy", 1000.0 + 1.5 * RETRY_S)
    no_room.remove("policy")
    assert "policy" not in no_room
    assert no_room.due("policy", 1000.0 + RETRY_S)


def test_the_run_ends_once_one_thing_has_waited_for_most_of_the_stall_timeout() -> None:
    no_room = NoRoom(stall_limit_s=100.0)
    assert PATIENCE == 0.9
    no_room.add("policy", HOME, 1000.0)
    # It found room, and then none: its time begins anew.
    no_room.remove("policy")
    no_room.add("policy", HOME, 1050.0)
    no_room.add("rollouts", "10.0.0.2", 1060.0)
    no_room.add("policy", HOME, 1139.0)
    assert no_room.given_up(1140.0) == ""
    no_room.remove("policy")
    assert no_room.given_up(1150.0) == ""
    assert no_room.given_up(1151.0) == (
        "Ray's object store on 10.0.0.2 has been full for 91 s; to have more, start Ray there with "
        "ray start --object-store-memory BYTES"
    )
    assert no_room.given_up(1152.0) == ""
