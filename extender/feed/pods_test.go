package feed

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Most pods of a large cluster may have ended, or wait: those are not even sent.
func TestPodsAreWatchedWhileTheyHoldVolumes(t *testing.T) {
	selector, err := fields.ParseSelector(running(metav1.ListOptions{}).FieldSelector)
	require.NoError(t, err)
	for what, test := range map[string]struct {
		node, phase string
		want        bool
	}{
		"a pod that runs":             {node: "home-1", phase: "Running", want: true},
		"a pod that starts":           {node: "home-1", phase: "Pending", want: true},
		"a pod that nobody hears of":  {node: "home-1", phase: "Unknown", want: true},
		"a pod that waits for a node": {phase: "Pending"},
		"a pod that ended":            {node: "home-1", phase: "Succeeded"},
		"a pod that failed":           {node: "home-1", phase: "Failed"},
	} {
		assert.Equal(t, test.want, selector.Matches(fields.Set{"spec.nodeName": test.node, "status.phase": test.phase}), what)
	}
}
