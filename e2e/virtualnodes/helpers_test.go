package virtualnodes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// long is the most that a test waits for something, and often is how often it
// looks.
const (
	long  = 60 * time.Second
	often = 50 * time.Millisecond
)

func eventually(t *testing.T, what string, done func() bool, otherwise func() any) {
	t.Helper()
	for deadline := time.Now().Add(long); !done(); time.Sleep(often) {
		if time.Now().After(deadline) {
			require.Fail(t, "waited too long until "+what, "now: %+v", otherwise())
		}
	}
}

func nodeNow(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node, err := bed.Home.Client().CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return node
}
