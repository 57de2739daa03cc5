#include "explorer.hpp"

#include <cstring>
#include <utility>

namespace penstock::model {

Explorer::Explorer(const Setting& setting)
    : setting_(setting),
      memory_(static_cast<unsigned char*>(std::aligned_alloc(64, (setting.nbytes + 63) / 64 * 64))),
      fibers_(setting.processes * most_lives, body, this) {
    CHECK(setting.processes < max_processes);
    std::memset(memory_.get(), 0, setting.nbytes);
    current_explorer = this;
}

std::optional<std::string> Explorer::run(Choices& choices, const Bounds& bounds) {
    choices.begin();
    choices_ = &choices;
    left_ = bounds;
    places_.reset(memory_.get(), setting_.nbytes, choices, left_.stale, left_.together);
    current_ = outside;
    steps_ = 0;
    violation_.reset();
    try {
        scenario_ = setting_.make(memory_.get());
        for (std::size_t process = 0; process < setting_.processes; ++process) {
            places_.knowledge(process).join(places_.knowledge(outside));
            processes_[process].life = 0;
            prepare(process);
        }
        const std::size_t first = choices.pick(Question::who_goes_on, setting_.processes);
        current_ = first;
        fibers_.start_from_outside(fiber(first));
        current_ = outside;
        if (!violation_) {
            for (std::size_t process = 0; process < setting_.processes; ++process) {
                places_.knowledge(outside).join(places_.knowledge(process));
            }
            scenario_->finish();
        }
    } catch (const Failed& failed) {
        violation_ = failed.text;
    }
    return violation_;
}

void Explorer::body(void* explorer) {
    Explorer& self = *static_cast<Explorer*>(explorer);
    self.scenario_->live(self.current_, self.processes_[self.current_].life);
    if (self.may_die() && self.choices_->pick(Question::who_dies, 2) == 1) {
        self.die();
    }
    self.processes_[self.current_].state = State::ended;
    self.leave();
}

// Each life has a fiber of its own, because the dying life still runs on the old one.
void Explorer::prepare(std::size_t process) {
    Process& prepared = processes_[process];
    CHECK(prepared.life < most_lives);
    fibers_.prepare(fiber(process));
    prepared.state = State::ready;
    prepared.looking_since = places_.stores() - 1;  // it may not have seen the last stores, so it may look twice
}

bool Explorer::runnable(std::size_t process) const {
    const Process& candidate = processes_[process];
    return candidate.state == State::ready ||
           (candidate.state == State::idle && candidate.looking_since != places_.stores());
}

std::size_t Explorer::candidates(std::array<std::size_t, max_processes>& found, std::size_t first) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < setting_.processes; ++i) {
        const std::size_t process = (first + i) % setting_.processes;
        if (runnable(process)) {
            found[count++] = process;
        }
    }
    return count;
}

void Explorer::make_current(std::size_t process) {
    Process& next = processes_[process];
    if (next.state == State::idle) {
        places_.catch_up(process);
        next.looking_since = places_.stores();
    }
    next.state = State::ready;
    current_ = process;
}

void Explorer::switch_to(std::size_t process) {
    const std::size_t from = current_;
    make_current(process);
    if (process != from) {
        fibers_.swap(fiber(from), fiber(process));
    }
}

void Explorer::leave() {
    std::array<std::size_t, max_processes> able;
    const std::size_t count = candidates(able, current_);
    if (count > 0) {
        // When a process ends, the choice of the next one is free. When it waits, the next process in order goes on; any
        // other one counts as a preemption.
        const bool free = processes_[current_].state == State::ended;
        const std::size_t picked = choices_->pick(Question::who_goes_on, free || may_preempt() ? count : 1);
        if (picked > 0 && !free) {
            preempt();
        }
        switch_to(able[picked]);
        return;
    }
    for (std::size_t process = 0; process < setting_.processes; ++process) {
        if (processes_[process].state == State::idle) {
            processes_[process].in_vain = true;
            switch_to(process);
            return;
        }
    }
    for (std::size_t process = 0; process < setting_.processes; ++process) {
        if (processes_[process].state == State::asleep) {
            violate("process " + std::to_string(process) + " sleeps for ever");
        }
    }
    fibers_.go_outside();
}

bool Explorer::may_die() const {
    return left_.deaths > 0 && left_.together > 0 && (setting_.mortal >> current_ & 1U) != 0;
}

void Explorer::die() {
    --left_.deaths;
    --left_.together;
    if (trace != nullptr) {
        trace->push_back(std::to_string(current_) + ": dies");
    }
    places_.die(current_);
    ++processes_[current_].life;
    const std::size_t dead = current_;
    prepare(dead);
    std::array<std::size_t, max_processes> able;
    const std::size_t next = able[choices_->pick(Question::who_goes_on, candidates(able, dead))];
    make_current(next);
    fibers_.go(fiber(next));
}

void Explorer::point() {
    if (current_ == outside) {
        return;
    }
    if (++steps_ > most_steps) {
        violate("no end after " + std::to_string(most_steps) + " operations");
    }
    std::array<std::size_t, max_processes> able;
    point_of_death();
    const std::size_t picked = may_preempt() ? choices_->pick(Question::who_goes_on, candidates(able, current_)) : 0;
    if (picked > 0) {
        preempt();
        switch_to(able[picked]);
    }
}

void Explorer::point_of_death() {
    if (current_ != outside && may_die() && choices_->pick(Question::who_dies, 2) == 1) {
        die();
    }
}

std::size_t Explorer::before(const void* word, const char* operation, const std::source_location& where,
                             std::memory_order& order, bool& left_out) {
    if (sites != nullptr) {
        sites->insert(Site::at(where, operation, order));
    }
    if (mutation && mutation->site.is(where)) {
        left_out = !mutation->weaker;
        order = mutation->weaker.value_or(order);
    }
    point();
    return places_.place(word);
}

void Explorer::after(const char* text, std::size_t place, std::uint64_t value, std::memory_order order) {
    if (trace != nullptr) {
        trace->push_back(std::to_string(current_) + ": place " + std::to_string(place) + " " + text + " " +
                         std::to_string(value) + " " + name_of(order));
    }
}

bool Explorer::idle() {
    Process& own = processes_[current_];
    own.state = State::idle;
    own.in_vain = false;
    leave();
    return !own.in_vain;
}

// Like a futex, it compares and falls asleep in one step. The kernel's read of the word is no stronger than a seq_cst load.
void Explorer::sleep_while(const void* word, std::uint64_t seen) {
    point();
    const std::size_t place = places_.place(word);
    if (places_.load(current_, place, std::memory_order_seq_cst) != seen) {
        return;
    }
    after("asleep at", place, seen, std::memory_order_seq_cst);
    processes_[current_].state = State::asleep;
    processes_[current_].asleep_on = place;
    leave();
}

void Explorer::wake(const void* word) {
    point();
    const std::size_t place = places_.place(word);
    for (std::size_t process = 0; process < setting_.processes; ++process) {
        if (processes_[process].state == State::asleep && processes_[process].asleep_on == place) {
            processes_[process].state = State::ready;
        }
    }
}

void Explorer::violate(std::string text) {
    if (current_ == outside) {
        throw Failed{std::move(text)};
    }
    violation_ = std::move(text);
    fibers_.go_outside();
}

}  // namespace penstock::model
