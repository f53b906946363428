package release

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestJudgeReleasesOnlyWhatNobodyCanEnd(t *testing.T) {
	going := metav1.NewTime(time.Unix(1, 0))
	node := func(status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
	}
	for name, test := range map[string]struct {
		held  bool
		going *metav1.Time
		node  *corev1.Node
		want  cli.ExitCode
	}{
		"being deleted, its node Ready":  {held: true, going: &going, node: node(corev1.ConditionTrue)},
		"being deleted, its node gone":   {held: true, going: &going},
		"its node not Ready":             {held: true, node: node(corev1.ConditionFalse)},
		"its node silent":                {held: true, node: node(corev1.ConditionUnknown)},
		"its node without a word":        {held: true, node: &corev1.Node{}},
		"its node gone":                  {held: true},
		"its node Ready":                 {held: true, node: node(corev1.ConditionTrue), want: cli.Refused},
		"never held":                     {going: &going, want: cli.Refused},
		"never held, its node not Ready": {node: node(corev1.ConditionFalse), want: cli.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", DeletionTimestamp: test.going}}
			if test.held {
				pod.Finalizers = []string{keys.RemotePodFinalizer}
			}
			assert.Equal(t, test.want, cli.ExitCodeOf(Judge(pod, test.node)))
		})
	}
}
