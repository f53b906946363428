package moves

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestDataIsOnANodeThatItsVolumeIsBoundTo(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "home-1", Labels: map[string]string{corev1.LabelHostname: "home-1"}}}
	on := func(name string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
			}}},
		}}}}
	}
	assert.True(t, isOn(on("home-1"), node))
	assert.False(t, isOn(on("home-2"), node))
	assert.False(t, isOn(&corev1.PersistentVolume{}, node), "one that is bound to no node may be copied for one")
	assert.False(t, isOn(nil, node))
}

func TestAMoveSaysWhetherItsDataIsThereAlready(t *testing.T) {
	reason := func(why error) string {
		r := &record.Record{Phase: v1alpha1.MovePrepare, Began: map[v1alpha1.MovePhase]time.Time{}, Claims: []record.Claim{{Name: "data"}}}
		judgement, err := judged(r, why)
		require.NoError(t, err)
		require.Equal(t, v1alpha1.MoveFailed, judgement.Phase)
		status := &v1alpha1.VolumeMoveStatus{}
		conditions(judgement, status)
		accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.MoveAccepted)
		require.Equal(t, metav1.ConditionFalse, accepted.Status)
		assert.Equal(t, why.Error(), accepted.Message)
		return accepted.Reason
	}
	assert.Equal(t, "Refused", reason(refuse("the pod may not be stopped")))
	assert.Equal(t, v1alpha1.MoveAlreadyThere, reason(already{"the data is there already"}))
	_, err := judged(&record.Record{}, errors.New("a cluster does not answer"))
	assert.Error(t, err, "what may pass is no judgement")
}
