// SPDX-License-Identifier: Apache-2.0
#include "sim/store/actors.h"

#include <algorithm>
#include <utility>

namespace tidewire::store::simulation {
namespace {

constexpr Nanos kStopEarly = 500 * kMillisecond;  // a writer stops so much before its lease ends

// One put: its keys are placed together, written one after the other, and end together.
class Put : public std::enable_shared_from_this<Put> {
 public:
  Put(ClientPtr client, Oracle& oracle, std::vector<PutWish> wishes, PutStyle style)
      : client_(std::move(client)), world_(client_->world), oracle_(oracle), style_(style) {
    for (PutWish& wish : wishes) items_.push_back({std::move(wish)});
    ++client_->busy;
  }
  ~Put() { --client_->busy; }

  void start() {
    PutStart start;
    start.upsert = style_.upsert;
    for (Item& item : items_) {
      start.keys.push_back(item.wish.key);
      start.sizes.push_back(item.wish.size);
      start.options.push_back(item.wish.options);
      item.pattern = oracle_.put_begins(item.wish.key, item.wish.size, style_.upsert);
    }
    const Nanos asked = client_->clock();
    client_->ask(std::move(start), [self = shared_from_this(), asked](const Body* body) {
      if (const auto* answer = body ? std::get_if<PutStartAnswer>(body) : nullptr) self->placed(*answer, asked);
    });
  }

 private:
  struct Piece {
    size_t item, place;
    uint64_t first, count;  // cells
  };
  struct Item {
    PutWish wish;
    PatternId pattern = 0;
    Version token = 0;
    std::vector<Place> places;
    std::vector<ClientPtr> owners;
    std::vector<uint32_t> open;  // pieces of each place that are not confirmed
    std::vector<bool> failed;
  };

  void placed(const PutStartAnswer& answer, Nanos asked) {
    for (size_t i = 0; i < items_.size(); ++i) {
      const PutPlace& put = answer.puts[i];
      if (put.code == Code::kNoSpace) ++oracle_.no_space;
      if (put.code == Code::kOk) oracle_.placed(items_[i].pattern, put.version, put.places);
      items_[i].token = put.version;
      items_[i].places = put.places;
    }
    std::erase_if(items_, [](const Item& item) { return item.places.empty(); });
    if (items_.empty()) return;
    lease_ = answer.lease;
    lease_until_ = asked + lease_;
    for (size_t i = 0; i < items_.size(); ++i) {
      Item& item = items_[i];
      item.failed.resize(item.places.size());
      item.open.resize(item.places.size());
      for (size_t p = 0; p < item.places.size(); ++p) {
        const ClientPtr owner = client_->cluster.find(item.places[p].segment.owner);
        item.owners.push_back(owner);
        sessions_[owner->membership.id()] = owner->session(client_->membership.id());
        const uint64_t cells = (item.wish.size + kCell - 1) / kCell;
        const auto size = static_cast<uint64_t>(
            world_.random.between(static_cast<int64_t>(cells / 6 + 1), static_cast<int64_t>(cells)));
        for (uint64_t first = 0; first < cells; first += size) {
          pieces_.push_back({i, p, first, std::min(size, cells - first)});
          ++item.open[p];
        }
      }
    }
    renew_later();
    next();
  }

  bool stopped() const {
    return over_ ||
           (client_->clock() >= lease_until_ - kStopEarly && !client_->cluster.mutations.writers_ignore_leases);
  }

  void renew_later() {
    const Nanos half = std::max<Nanos>(client_->world_time(lease_until_ - lease_ / 2) - world_.now(), kMillisecond);
    client_->after(half, [self = shared_from_this()] {
      if (self->stopped() || self->silent_) return;
      PutRenew renew;
      for (const Item& item : self->items_) renew.puts.push_back({item.wish.key, item.token});
      const Nanos asked = self->client_->clock();
      self->client_->ask(std::move(renew), [self, asked](const Body* body) {
        const auto* answer = body ? std::get_if<PutRenewAnswer>(body) : nullptr;
        if (answer == nullptr || self->over_) return;
        const bool all =
            std::all_of(answer->codes.begin(), answer->codes.end(), [](Code code) { return code == Code::kOk; });
        if (!all) return;
        self->lease_until_ = asked + answer->lease;
        self->renew_later();
      });
    });
  }

  // Sends the next piece; or ends, when all is confirmed or time is up.
  void next() {
    if (over_) return;
    if (stopped()) return give_up();
    if (style_.dies && at_ >= pieces_.size() / 2) {
      silent_ = true;  // what was sent still arrives
      return;
    }
    if (at_ == pieces_.size()) return end_when_confirmed();
    const Piece piece = pieces_[at_++];
    Item& item = items_[piece.item];
    if (item.failed[piece.place]) return next();
    send(piece, 0);
    // What may happen between this decision and the moment when the bytes leave is part of the piece's way.
    client_->after(style_.pace + world_.random.skewed(10 * kMicrosecond, 20 * kMillisecond),
                   [self = shared_from_this()] { self->next(); });
  }

  void send(const Piece& piece, int tries) {
    Item& item = items_[piece.item];
    const ClientPtr owner = item.owners[piece.place];
    const uint64_t session = sessions_[owner->membership.id()];
    const PatternId pattern = item.pattern;
    const uint64_t address = item.places[piece.place].address + piece.first * kCell;
    const Nanos slow = world_.random.chance(0.05) ? world_.random.between(0, 4 * kSecond) : 0;
    const Nanos path = std::max<Nanos>(client_->cluster.network.heals_at(client_->host, owner->host) - world_.now(), 0);
    const Nanos way = path + slow + client_->cluster.network.delay();
    world_.after(way, [self = shared_from_this(), piece, tries, owner, session, pattern, address] {
      const bool placed = owner->alive && (owner->session(self->client_->membership.id()) == session ||
                                           self->client_->cluster.mutations.writers_ignore_leases);
      if (placed) {
        if (Cell* cells = owner->cells(address, piece.count)) {
          self->oracle_.landing(pattern, owner, address, piece.count);
          for (uint64_t i = 0; i < piece.count; ++i) cells[i] = {pattern, static_cast<uint32_t>(piece.first + i)};
        }
      }
      const Nanos back =
          self->client_->cluster.network.delay() + (owner->alive ? 0 : self->world_.random.between(0, 2 * kSecond));
      self->client_->after(back, [self, piece, tries, owner, placed] { self->confirmed(piece, tries, owner, placed); });
    });
  }

  void confirmed(const Piece& piece, int tries, const ClientPtr& owner, bool placed) {
    if (over_ || silent_) return;
    Item& item = items_[piece.item];
    if (!placed) {
      // The engine opens a new session and repeats, while the deadline permits.
      if (tries < 2 && owner->alive && !stopped()) {
        sessions_[owner->membership.id()] = owner->session(client_->membership.id());
        return send(piece, tries + 1);
      }
      item.failed[piece.place] = true;
    }
    --item.open[piece.place];
    if (at_ == pieces_.size()) end_when_confirmed();
  }

  void end_when_confirmed() {
    if (over_ || silent_) return;
    if (stopped()) return give_up();
    bool open = false, failed = false;
    for (const Item& item : items_)
      for (size_t p = 0; p < item.places.size(); ++p) {
        open = open || (item.open[p] > 0 && !item.failed[p] && !client_->cluster.mutations.commit_unwritten);
        failed = failed || item.failed[p];
      }
    // Somebody comes again at the next confirmation, or at the lease's end.
    if (open) {
      if (!std::exchange(watching_, true)) watch();
      return;
    }
    over_ = true;
    if (!failed) return end();
    cut_then([self = shared_from_this()] { self->end(); });
  }

  void watch() {
    const Nanos left = std::max<Nanos>(client_->world_time(lease_until_ - kStopEarly) - world_.now(), kMillisecond);
    client_->after(left, [self = shared_from_this()] {
      if (self->over_ || self->silent_) return;
      if (self->stopped()) return self->give_up();
      self->watch();
    });
  }

  // Makes sure that nothing of ours is under way any more: the engine's own revocation.
  void cut_then(std::function<void()> done) {
    Nanos latest = 0;
    for (const auto& [id, session] : sessions_) {
      const ClientPtr owner = client_->cluster.find(id);
      const Nanos heal =
          std::max<Nanos>(client_->cluster.network.heals_at(client_->host, owner->host) - world_.now(), 0);
      const Nanos way = heal + client_->cluster.network.delay();
      world_.after(way, [owner, writer = client_->membership.id()] { owner->cut(writer); });
      latest = std::max(latest, way + client_->cluster.network.delay());
    }
    client_->after(latest, std::move(done));
  }

  void end() {
    if (client_->clock() >= lease_until_ - kStopEarly && !client_->cluster.mutations.writers_ignore_leases)
      return revoke(true);
    PutEnd end;
    std::vector<PatternId> patterns;
    bool any = false;
    for (const Item& item : items_) {
      end.puts.push_back({item.wish.key, item.token});
      end.checksums.push_back(item.pattern);
      uint32_t written = 0;
      for (size_t p = 0; p < item.places.size(); ++p)
        if (!item.failed[p]) written |= 1u << p;
      end.written.push_back(written);
      patterns.push_back(item.pattern);
      any = any || written != 0;
    }
    if (!any) return revoke(true);
    const ConnectionPtr connection = client_->connection;
    if (!connection) return;
    client_->ask(std::move(end), [self = shared_from_this(), connection](const Body* body) {
      const auto* answer = body ? std::get_if<CodesAnswer>(body) : nullptr;
      if (answer == nullptr) return;
      for (size_t i = 0; i < answer->codes.size() && i < self->items_.size(); ++i)
        if (answer->codes[i] == Code::kOk)
          self->oracle_.put_acked(self->items_[i].pattern, self->client_->cluster.is_current(*connection->master));
    });
    oracle_.put_ends(connection->id, client_->last_request(), patterns);
  }

  void give_up() {
    if (std::exchange(over_, true)) return;
    ++oracle_.abandoned;
    if (style_.confirms) return cut_then([self = shared_from_this()] { self->revoke(true); });
    revoke(false);
  }

  void revoke(bool quiet) {
    PutRevoke revoke;
    revoke.quiet = quiet;
    for (const Item& item : items_) revoke.puts.push_back({item.wish.key, item.token});
    client_->ask(std::move(revoke), [self = shared_from_this()](const Body*) {});
  }

  const ClientPtr client_;
  World& world_;
  Oracle& oracle_;
  const PutStyle style_;
  std::vector<Item> items_;
  std::vector<Piece> pieces_;
  size_t at_ = 0;
  std::map<ClientId, uint64_t> sessions_;  // with each owner
  Nanos lease_ = 0, lease_until_ = 0;
  bool over_ = false;    // no more pieces are sent
  bool silent_ = false;  // the program has forgotten it
  bool watching_ = false;
};

class Get : public std::enable_shared_from_this<Get> {
 public:
  Get(ClientPtr client, Oracle& oracle, std::string key, GetStyle style)
      : client_(std::move(client)), world_(client_->world), oracle_(oracle), key_(std::move(key)), style_(style) {
    ++client_->busy;
  }
  ~Get() { --client_->busy; }

  void start() {
    if (style_.attempts-- == 0 || !client_->connection) return;
    const Nanos asked = client_->clock();
    const Nanos begun = oracle_.now();
    client_->ask(store::Get{{key_}}, [self = shared_from_this(), asked, begun,
                                      connection = client_->connection](const Body* body) {
      const auto* answer = body ? std::get_if<GetAnswer>(body) : nullptr;
      if (answer == nullptr || answer->gets[0].code != Code::kOk) return;
      self->place_ = answer->gets[0];
      self->lease_until_ = asked + answer->lease;
      self->begun_ = begun;
      self->from_current_ = self->client_->cluster.is_current(*connection->master);
      self->cells_.clear();
      const auto& places = self->place_.places;
      const Place& place =
          places[static_cast<size_t>(self->world_.random.between(0, static_cast<int64_t>(places.size()) - 1))];
      self->address_ = place.address;
      self->owner_ = self->client_->cluster.find(place.segment.owner);
      self->next();
    });
  }

 private:
  void next() {
    const uint64_t all = (place_.size + kCell - 1) / kCell;
    if (cells_.size() == all) return finish();
    // The clock is read when bytes have come, not before they are asked for: a lease may run out under way.
    const uint64_t count = std::min(
        all - cells_.size(),
        static_cast<uint64_t>(world_.random.between(static_cast<int64_t>(all / 4 + 1), static_cast<int64_t>(all))));
    const Nanos path =
        std::max<Nanos>(client_->cluster.network.heals_at(client_->host, owner_->host) - world_.now(), 0);
    world_.after(path + client_->cluster.network.delay() + style_.pace, [self = shared_from_this(), count] {
      const Cell* cells =
          self->owner_->alive ? self->owner_->cells(self->address_ + self->cells_.size() * kCell, count) : nullptr;
      if (cells != nullptr) self->cells_.insert(self->cells_.end(), cells, cells + count);
      self->client_->after(self->client_->cluster.network.delay(), [self, good = cells != nullptr] {
        if (good) return self->next();
        self->start();
      });
    });
  }

  void finish() {
    if (client_->clock() < lease_until_) return oracle_.read(key_, begun_, from_current_, place_, cells_);
    ++oracle_.discarded;
    start();
  }

  const ClientPtr client_;
  World& world_;
  Oracle& oracle_;
  const std::string key_;
  GetStyle style_;
  GetPlace place_;
  Nanos lease_until_ = 0;
  Nanos begun_ = 0;
  bool from_current_ = false;
  uint64_t address_ = 0;
  ClientPtr owner_;
  std::vector<Cell> cells_;
};

}  // namespace

void put(const ClientPtr& client, Oracle& oracle, std::vector<PutWish> wishes, PutStyle style) {
  std::make_shared<Put>(client, oracle, std::move(wishes), style)->start();
}

void get(const ClientPtr& client, Oracle& oracle, const std::string& key, GetStyle style) {
  std::make_shared<Get>(client, oracle, key, style)->start();
}

void remove(const ClientPtr& client, Oracle& oracle, std::vector<std::string> keys, bool force) {
  if (!client->connection) return;
  std::vector<Oracle::Removal> removals;
  for (const std::string& key : keys) removals.push_back(oracle.remove_begins(key));
  Remove wish{keys, force};
  ++client->busy;
  client->ask(std::move(wish), [client, &oracle, keys, removals, connection = client->connection](const Body* body) {
    --client->busy;
    const auto* answer = body ? std::get_if<CodesAnswer>(body) : nullptr;
    if (answer == nullptr) return;
    for (size_t i = 0; i < keys.size(); ++i)
      oracle.remove_ends(keys[i], removals[i], answer->codes[i], *connection->master);
  });
}

void exists(const ClientPtr& client, std::vector<std::string> keys) {
  ++client->busy;
  client->ask(Exists{std::move(keys)}, [client](const Body*) { --client->busy; });
}

}  // namespace tidewire::store::simulation
