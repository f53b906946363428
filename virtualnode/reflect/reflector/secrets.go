package reflector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/virtualnode/reflect/copies"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/needs"
)

// rewritePeriod is how often a Secret is written again that did not change: what
// somebody did to it there cannot be seen.
const rewritePeriod = 10 * time.Minute

// wanted is a Secret that is to be there.
type wanted struct {
	// home is the UID of the home object that it is for, version its state.
	home    types.UID
	version string
	// secret is what to write.
	secret *corev1.Secret
}

// written is what is known of a Secret that we wrote.
type written struct {
	home    types.UID
	version string
	ledger  types.UID // that of its owner
	at      time.Time
}

func (s *space) remember(name string, w written) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[name] = w
}

func (s *space) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.written, name)
}

func (s *space) remembered(name string) written {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written[name]
}

// secretNames returns the names of the Secrets that may be there.
func (s *space) secretNames() []string {
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.written))
	s.mu.Unlock()
	return append(names, s.ledger.names()...)
}

// lookAtSecret brings a Secret in step: the copy of one, or a token.
func (m *mirror) lookAtSecret(ctx context.Context, s *space, k key) (time.Duration, error) {
	if strings.HasPrefix(k.name, needs.TokenPrefix) {
		return m.lookAtToken(ctx, s, k)
	}
	if len(m.needing(k)) == 0 {
		m.secrets.release(k.namespace, k.name)
		return 0, m.settle(ctx, s, k, nil)
	}
	home, known, err := m.secrets.hold(k.namespace, k.name)
	switch {
	case err != nil:
		return 0, &refusal{reason: "SecretUnreadable", message: fmt.Sprintf(
			"Secret %s did not follow its pods to cluster %s, for it cannot be read: %v; see what rights the virtual nodes need", k.name, m.session.Cluster, err)}
	case !known:
		return 0, nil // it will be
	case home == nil || copies.IsCopy(home):
		return 0, m.settle(ctx, s, k, nil)
	case home.Type == corev1.SecretTypeServiceAccountToken:
		if err := m.settle(ctx, s, k, nil); err != nil {
			return 0, err
		}
		return 0, &refusal{reason: "TokenStaysHome", message: fmt.Sprintf(
			"Secret %s holds a token of the home API, which does not travel: annotate the pod with lodestone.dev/service-account-token=<audience> to give it one of its own", k.name)}
	}
	err = m.settle(ctx, s, k, &wanted{home: home.UID, version: home.ResourceVersion, secret: m.place(s).Secret(home)})
	return rewritePeriod, err
}

// settle goes from what the ledger says to what is wanted. After a failure at
// any point it goes on from there when it is called again.
func (m *mirror) settle(ctx context.Context, s *space, k key, want *wanted) error {
	recorded, _ := s.ledger.home(k.name)
	have := s.remembered(k.name)
	if recorded == "" {
		recorded = have.home // somebody changed the ledger
	}
	if recorded != "" && (want == nil || want.home != recorded) {
		if err := m.removeSecret(ctx, s, k.name, recorded); err != nil {
			return err
		}
		if err := s.ledger.strike(ctx, k.name, recorded); err != nil {
			return err
		}
		s.forget(k.name)
		have = written{}
	}
	if want == nil {
		return nil
	}
	if err := s.ledger.record(ctx, k.name, want.home); err != nil {
		return err
	}
	_, ledger := s.ledger.home(k.name)
	fresh := have.version == want.version && have.ledger == ledger && m.Clock.Since(have.at) < rewritePeriod
	if have.home == want.home && fresh {
		return nil
	}
	if err := m.writeSecret(ctx, s, k, want.secret, have.home != "", ledger); err != nil {
		return err
	}
	s.remember(k.name, written{home: want.home, version: want.version, ledger: ledger, at: m.Clock.Now()})
	return nil
}
