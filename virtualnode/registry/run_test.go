package registry

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// unserved serves nothing.
type unserved struct{ Endpoints }

func (unserved) Use(string, *session.Session) {}

// runningTenure returns a tenure with a session, and the context that ends when
// that session is told to end.
func runningTenure(t *testing.T, content map[string][]byte) (*tenure, context.Context) {
	t.Helper()
	secrets := store(t, &corev1.Secret{}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "west"}, Data: content})
	tenure := newTenure("west", Config{Namespace: "system", Secrets: secrets, Endpoints: unserved{}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	context.AfterFunc(ctx, func() { close(done) })
	tenure.current = &running{cancel: cancel, done: done}
	tenure.fingerprint = "of the kubeconfig before"
	return tenure, ctx
}

func TestWithoutAUsableKubeconfigThereIsNoSession(t *testing.T) {
	going := metav1.NewTime(time.Unix(1, 0))
	for name, deleted := range map[string]*metav1.Time{"a cluster that stays": nil, "a cluster that is being deleted": &going} {
		for kind, content := range map[string]map[string][]byte{
			"none":    {},
			"another": {"kubeconfig.forgotten": []byte("content")},
			"broken":  {"kubeconfig": []byte("nothing of use")},
		} {
			t.Run(name+", kubeconfig "+kind, func(t *testing.T) {
				tenure, ctx := runningTenure(t, content)
				remote := remoteCluster("west", 1)
				remote.DeletionTimestamp = deleted
				_, err := tenure.keepSession(t.Context(), remote)
				require.Error(t, err)
				assert.Nil(t, tenure.current)
				assert.Error(t, ctx.Err(), "the session was ended")
			})
		}
	}
}

func TestANodeThatLeavesSaysWhetherItsPodsCanBeEnded(t *testing.T) {
	state := leaving("west", 2, 0, nil)
	assert.Equal(t, "Leaving", state.Reason)
	state = leaving("west", 2, 1, errors.New("the Secret system/west has no key kubeconfig: put the kubeconfig there"))
	assert.Equal(t, badKubeconfig, state.Reason)
	assert.Contains(t, state.Message, "pods left: 2")
	assert.Contains(t, state.Message, "put the kubeconfig there")
}
