package backing_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// carrying is a virtual class that carries the keys of these patterns.
func carrying(t *testing.T, patterns string) virtualclass.Class {
	t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), Parameters: map[string]string{},
	}
	if patterns != "" {
		class.Parameters[keys.Carry] = patterns
	}
	parsed, err := virtualclass.Parse(class)
	require.NoError(t, err)
	return parsed
}

func meta(labels, annotations map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}}
}

// ours are the label and annotation of a backing claim that say whose it is.
func ours(labels, annotations map[string]string) *corev1.PersistentVolumeClaim {
	b := meta(map[string]string{keys.ClaimUID: "u1"}, map[string]string{keys.Claim: "shop/data"})
	for key, value := range labels {
		b.Labels[key] = value
	}
	for key, value := range annotations {
		b.Annotations[key] = value
	}
	return b
}

func TestCarry(t *testing.T) {
	claim := meta(map[string]string{"team": "a", "app": "db", keys.ClaimUID: "forged"},
		map[string]string{"backup/daily": "yes", "team": "b", keys.Claim: "bank/gold", keys.SelectedNode: "n"})
	b := ours(nil, nil)
	backing.Carry(b, claim, carrying(t, ""))
	assert.Equal(t, ours(nil, nil), b, "a class without the parameter carries nothing")
	backing.Carry(b, claim, carrying(t, "team, backup/*"))
	assert.Equal(t, ours(map[string]string{"team": "a"}, map[string]string{"team": "b", "backup/daily": "yes",
		keys.Carried: `{"labels":["team"],"annotations":["backup/daily","team"]}`}), b)
	b = ours(nil, nil)
	backing.Carry(b, claim, carrying(t, "*"))
	assert.Equal(t, "u1", b.Labels[keys.ClaimUID], "not even with an asterisk alone")
	assert.Equal(t, "shop/data", b.Annotations[keys.Claim])
	assert.NotContains(t, b.Annotations, keys.SelectedNode)
	assert.Equal(t, "db", b.Labels["app"])

	labels, annotations := backing.CarryPatch(b, claim, carrying(t, "*"))
	assert.Empty(t, labels, "what was just carried is in step")
	assert.Empty(t, annotations)
}

func TestCarryPatch(t *testing.T) {
	const record = `{"labels":["team"]}`
	for name, test := range map[string]struct {
		b, claim            *corev1.PersistentVolumeClaim
		patterns            string
		labels, annotations map[string]any
	}{
		"nothing is carried":  {b: ours(nil, nil), claim: meta(map[string]string{"team": "a"}, nil)},
		"a new label":         {b: ours(nil, nil), claim: meta(map[string]string{"team": "a"}, nil), patterns: "team", labels: map[string]any{"team": "a"}, annotations: map[string]any{keys.Carried: record}},
		"a label that drifts": {b: ours(map[string]string{"team": "x"}, map[string]string{keys.Carried: record}), claim: meta(map[string]string{"team": "a"}, nil), patterns: "team", labels: map[string]any{"team": "a"}},
		"a label that is gone from the claim": {b: ours(map[string]string{"team": "a"}, map[string]string{keys.Carried: record}), claim: meta(nil, nil), patterns: "team",
			labels: map[string]any{"team": nil}, annotations: map[string]any{keys.Carried: nil}},
		"a label that is gone from both": {b: ours(nil, map[string]string{keys.Carried: record}), claim: meta(nil, nil), patterns: "team", annotations: map[string]any{keys.Carried: nil}},
		"a label that others wrote":      {b: ours(map[string]string{"cost": "7"}, map[string]string{keys.Carried: record}), claim: meta(map[string]string{"team": "a"}, nil), patterns: "team", labels: map[string]any{"team": "a"}},
		"a record that was forged removes nothing of ours": {
			b:     ours(nil, map[string]string{keys.Carried: `{"labels":["` + keys.ClaimUID + `"],"annotations":["` + keys.Claim + `","pv.kubernetes.io/bind-completed"]}`, "pv.kubernetes.io/bind-completed": "yes"}),
			claim: meta(nil, nil), annotations: map[string]any{keys.Carried: nil}},
		"a record that cannot be read removes nothing": {b: ours(map[string]string{"team": "a"}, map[string]string{keys.Carried: "?"}), claim: meta(nil, nil), annotations: map[string]any{keys.Carried: nil}},
	} {
		t.Run(name, func(t *testing.T) {
			labels, annotations := backing.CarryPatch(test.b, test.claim, carrying(t, test.patterns))
			for what, pair := range map[string][2]map[string]any{"labels": {test.labels, labels}, "annotations": {test.annotations, annotations}} {
				if len(pair[0])+len(pair[1]) > 0 {
					assert.Equal(t, pair[0], pair[1], what)
				}
			}
		})
	}
}

func TestWhatIsCarriedIsBounded(t *testing.T) {
	claim := meta(nil, map[string]string{"long": strings.Repeat("x", 4096)})
	for i := range 500 {
		claim.Annotations[fmt.Sprintf("key-%03d", i)] = "v"
	}
	b := ours(nil, nil)
	backing.Carry(b, claim, carrying(t, "*"))
	assert.NotContains(t, b.Annotations, "long")
	assert.Contains(t, b.Annotations, "key-000", "always the same ones")
	assert.Less(t, len(b.Annotations), 40)
	labels, annotations := backing.CarryPatch(b, claim, carrying(t, "*"))
	assert.Empty(t, labels)
	assert.Empty(t, annotations)
}
