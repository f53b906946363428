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
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// unserved serves nothing.
type unserved struct{ Endpoints }

func (unserved) Use(string, *session.Session) {}

// runningWorker returns a worker with a session, and the context that ends when
// that session is told to end.
func runningWorker(t *testing.T, content map[string][]byte) (*clusterWorker, context.Context) {
	t.Helper()
	secrets := store(t, &corev1.Secret{}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "west"}, Data: content})
	worker := newClusterWorker("west", Config{Namespace: "system", Secrets: secrets, Endpoints: unserved{}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	context.AfterFunc(ctx, func() { close(done) })
	worker.current = &running{cancel: cancel, done: done}
	worker.fingerprint = "of the kubeconfig before"
	return worker, ctx
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
				worker, ctx := runningWorker(t, content)
				remote := remoteCluster("west", 1)
				remote.DeletionTimestamp = deleted
				_, err := worker.ensureSession(t.Context(), remote)
				require.Error(t, err)
				assert.Nil(t, worker.current)
				assert.Error(t, ctx.Err(), "the session was ended")
			})
		}
	}
}

func TestANodeThatLeavesSaysWhetherItsPodsCanBeEnded(t *testing.T) {
	state := retiring("west", 2, 0, nil)
	assert.Equal(t, "Leaving", state.Reason)
	state = retiring("west", 2, 1, errors.New("the Secret system/west has no key kubeconfig: put the kubeconfig there"))
	assert.Equal(t, badKubeconfig, state.Reason)
	assert.Contains(t, state.Message, "pods left: 2")
	assert.Contains(t, state.Message, "put the kubeconfig there")
}

func TestPodsThatKeepANode(t *testing.T) {
	protected := []string{keys.RemotePodFinalizer}
	owned := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: "agent", Controller: ptr.To(true)}}
	}
	for name, test := range map[string]struct {
		finalizers []string
		owners     []metav1.OwnerReference
		with, less bool // whether it holds with a node, and without one
	}{
		"a pod that may run there":                     {finalizers: protected, with: true, less: true},
		"a pod of a DaemonSet that may run there":      {finalizers: protected, owners: owned("DaemonSet"), with: true, less: true},
		"a pod that nothing runs for":                  {with: true},
		"a pod of a StatefulSet":                       {owners: owned("StatefulSet"), with: true},
		"a pod of a DaemonSet that nothing runs for":   {owners: owned("DaemonSet")},
		"a pod that a DaemonSet owns but not controls": {owners: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent"}}, with: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", Finalizers: test.finalizers,
				OwnerReferences: test.owners}, Spec: corev1.PodSpec{NodeName: "west"}}
			leaving := newClusterWorker("west", Config{Home: fake.NewClientset(pod)})
			held, err := leaving.pods(t.Context(), &corev1.Node{})
			require.NoError(t, err)
			assert.Equal(t, test.with, len(held) == 1)
			held, err = leaving.pods(t.Context(), nil)
			require.NoError(t, err)
			assert.Equal(t, test.less, len(held) == 1)
		})
	}
}
