package oauth

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// usedEvery is how exactly Grant.LastUsedAt is kept after the first use.
const usedEvery = time.Minute

// findAccess reads an access token, valid or not, with its connection.
func (s *Server) findAccess(ctx context.Context, id string, secret []byte) (rec record, token string, ok bool, err error) {
	var values []any
	err = s.store.ask(ctx, "reading an access token", func(ctx context.Context) (err error) {
		values, err = s.o.Redis.HMGet(ctx, s.store.grantKey(id), append(shown(), accessField(digest(secret)))...).Result()
		return err
	})
	if err != nil {
		return record{}, "", false, err
	}
	token, _ = values[len(shown())].(string)
	rec, ok = readGrant(id, values)
	return rec, token, ok && token != "", nil
}

// Authenticate returns the connection that an access token is for. ErrInvalidToken, ErrUnavailable.
func (s *Server) Authenticate(ctx context.Context, bearer string) (Grant, error) {
	id, secret, ok := parseToken(kindAccess, bearer, secretBytes)
	if !ok {
		return Grant{}, ErrInvalidToken
	}
	rec, token, ok, err := s.findAccess(ctx, id, secret)
	if err != nil {
		return Grant{}, err
	}
	if !ok || rec.state != stateLive || rec.resource != s.resource {
		return Grant{}, ErrInvalidToken
	}
	ends, scopes, _ := strings.Cut(token, " ")
	now := s.o.Now()
	if !now.Before(moment(ends)) || !now.Before(rec.ExpiresAt) {
		return Grant{}, ErrInvalidToken
	}
	rec.Scopes = known(scopes)
	if first := !rec.LastUsedAt.After(rec.CreatedAt); first || now.Sub(rec.LastUsedAt) >= usedEvery {
		used := millis(now)
		if _, err := s.store.run(ctx, "remembering a use", s.store.touch, []string{s.store.grantKey(id)}, used); err == nil {
			rec.LastUsedAt = moment(used)
		}
	}
	return rec.Grant, nil
}

// Grants returns a business's connections, the newest first. ErrUnavailable.
func (s *Server) Grants(ctx context.Context, businessID string) ([]Grant, error) {
	records, err := s.records(ctx, businessID)
	if err != nil {
		return nil, err
	}
	now := s.o.Now()
	grants := make([]Grant, 0, len(records))
	for _, rec := range records {
		if rec.state == stateLive && rec.resource == s.resource && now.Before(rec.ExpiresAt) {
			grants = append(grants, rec.Grant)
		}
	}
	slices.SortFunc(grants, func(a, b Grant) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return grants, nil
}

// records reads all of a business's connections, also those whose code waits to be redeemed, and clears the index of
// those that have ended.
func (s *Server) records(ctx context.Context, businessID string) ([]record, error) {
	var index []redis.Z
	err := s.store.ask(ctx, "reading the index of connections", func(ctx context.Context) (err error) {
		index, err = s.o.Redis.ZRangeWithScores(ctx, s.store.businessKey(businessID), 0, -1).Result()
		return err
	})
	if err != nil || len(index) == 0 {
		return nil, err
	}
	replies := make([]*redis.SliceCmd, len(index))
	err = s.store.ask(ctx, "reading connections", func(ctx context.Context) error {
		_, err := s.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, entry := range index {
				id, _ := entry.Member.(string)
				replies[i] = p.HMGet(ctx, s.store.grantKey(id), shown()...)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	var ended []any
	records := make([]record, 0, len(index))
	// One that is being approved is in the index before it is there itself: it leaves by its time.
	soon := float64(s.o.Now().Add(2 * CodeLifetime).UnixMilli())
	for i, entry := range index {
		id, _ := entry.Member.(string)
		rec, ok := readGrant(id, replies[i].Val())
		switch {
		case ok && rec.BusinessID == businessID:
			records = append(records, rec)
		case !ok && entry.Score > soon:
			ended = append(ended, entry.Member)
		}
	}
	s.store.leave(ctx, businessID, ended...)
	return records, nil
}

// Revoke ends a connection of the business: the next call with any of its tokens is refused. ErrNoGrant, also for
// another business's; ErrUnavailable.
func (s *Server) Revoke(ctx context.Context, businessID, grantID string) error {
	if businessID == "" || !validID(grantID) {
		return ErrNoGrant
	}
	ended, err := s.store.endIf(ctx, grantID, fieldBusiness, businessID)
	if err != nil {
		return err
	}
	if !ended {
		return ErrNoGrant
	}
	s.store.leave(ctx, businessID, grantID)
	return nil
}

// RevokeAccount ends all connections that an account has approved and says how many. After ErrUnavailable some may have
// been ended: it may be called again.
func (s *Server) RevokeAccount(ctx context.Context, businessID, accountID string) (int, error) {
	records, err := s.records(ctx, businessID)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, rec := range records {
		if rec.AccountID != accountID {
			continue
		}
		ended, err := s.store.endIf(ctx, rec.ID, fieldBusiness, businessID)
		if err != nil {
			return n, err
		}
		if ended {
			s.store.leave(ctx, businessID, rec.ID)
			n++
		}
	}
	return n, nil
}
