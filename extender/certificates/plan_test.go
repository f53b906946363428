package certificates

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const year = 365 * 24 * time.Hour

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func made(t *testing.T, at time.Time) *Pair {
	t.Helper()
	pair, err := NewAuthority(at, 6*year)
	require.NoError(t, err)
	return pair
}

func TestPlan(t *testing.T) {
	first, second := made(t, start), made(t, start.Add(4*year))
	for name, test := range map[string]struct {
		authorities Authorities
		at          time.Duration
		step        Step
	}{
		"nothing is there":                            {step: Begin},
		"a young authority":                           {authorities: Authorities{Current: first}, at: 3 * year, step: Keep},
		"after two thirds of its life":                {authorities: Authorities{Current: first}, at: 4*year + time.Hour, step: Prepare},
		"the next one waits":                          {authorities: Authorities{Current: first, Next: second}, at: 4*year + 2*time.Hour, step: Keep},
		"the next one signs after five sixths":        {authorities: Authorities{Current: first, Next: second}, at: 5 * year, step: TakeOver},
		"the previous one is trusted":                 {authorities: Authorities{Current: second, Previous: first.Certificate}, at: 5*year + time.Hour, step: Keep},
		"the previous one has expired":                {authorities: Authorities{Current: second, Previous: first.Certificate}, at: 6*year + time.Hour, step: Forget},
		"the only one has expired":                    {authorities: Authorities{Current: first}, at: 7 * year, step: Begin},
		"the first one has expired, the next has not": {authorities: Authorities{Current: first, Next: second}, at: 7 * year, step: TakeOver},
		"both have expired":                           {authorities: Authorities{Current: first, Next: second}, at: 11 * year, step: Begin},
		"only the next one is left":                   {authorities: Authorities{Next: second}, at: 5 * year, step: TakeOver},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.step, test.authorities.Plan(start.Add(test.at)))
		})
	}
}

// In ten lives of an authority, each day's bundle trusts what the day before has
// signed, and is trusted by who took it over when the next authority was made.
func TestTrustIsNeverBroken(t *testing.T) {
	const day, life = 24 * time.Hour, 60 * 24 * time.Hour
	authorities := &Authorities{}
	want := Leaf{Name: "server", Usage: x509.ExtKeyUsageServerAuth, Life: 12 * day}
	var server *Pair
	seen := map[Step]int{}
	for now := start; now.Before(start.Add(10 * life)); now = now.Add(day) {
		for step := authorities.Plan(now); step != Keep; step = authorities.Plan(now) {
			seen[step]++
			var err error
			authorities, err = authorities.Take(step, now, life)
			require.NoError(t, err)
		}
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(authorities.Bundle()))
		verify := func() {
			_, err := server.Certificate.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now})
			require.NoError(t, err, "day %v", now.Sub(start)/day)
		}
		if server != nil {
			verify()
		}
		if server == nil || authorities.Reissue(now, server.Certificate, want) != "" {
			var err error
			server, err = authorities.Current.Issue(now, want)
			require.NoError(t, err)
			verify()
		}
	}
	assert.Equal(t, 1, seen[Begin], "an authority that nobody knows yet")
	assert.Greater(t, seen[TakeOver], 8)
	assert.Equal(t, seen[TakeOver], seen[Prepare])
}

func TestReissue(t *testing.T) {
	authority, other := made(t, start), made(t, start)
	want := Leaf{Name: "server", Usage: x509.ExtKeyUsageServerAuth, Hosts: []string{"a.example", "10.0.0.1", "fd00::1"}, Life: 90 * 24 * time.Hour}
	issue := func(by *Pair, leaf Leaf) *x509.Certificate {
		pair, err := by.Issue(start, leaf)
		require.NoError(t, err)
		return pair.Certificate
	}
	changed := func(change func(*Leaf)) Leaf {
		leaf := want
		change(&leaf)
		return leaf
	}
	for name, test := range map[string]struct {
		have *x509.Certificate
		at   time.Duration
		says string
	}{
		"as wanted":                    {have: issue(authority, want), at: 50 * 24 * time.Hour},
		"none":                         {says: "there is none"},
		"old":                          {have: issue(authority, want), at: 61 * 24 * time.Hour, says: "two thirds of its life are over"},
		"of another authority":         {have: issue(other, want), says: "another authority signs now"},
		"of another name":              {have: issue(authority, changed(func(l *Leaf) { l.Name = "x" })), says: "it is for another purpose"},
		"of a client":                  {have: issue(authority, changed(func(l *Leaf) { l.Usage = x509.ExtKeyUsageClientAuth })), says: "it is for another purpose"},
		"of fewer hosts":               {have: issue(authority, changed(func(l *Leaf) { l.Hosts = l.Hosts[:1] })), says: "the hosts are others now"},
		"of another address":           {have: issue(authority, changed(func(l *Leaf) { l.Hosts = []string{"a.example", "10.0.0.2", "fd00::1"} })), says: "the hosts are others now"},
		"no longer than its authority": {have: issue(authority, changed(func(l *Leaf) { l.Life = 9 * year })), at: 5 * year},
	} {
		t.Run(name, func(t *testing.T) {
			authorities := Authorities{Current: authority}
			assert.Equal(t, test.says, authorities.Reissue(start.Add(test.at), test.have, want))
		})
	}
}
