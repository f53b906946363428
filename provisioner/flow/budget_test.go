package flow

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

func TestWhatARemoteClusterSaysIsWrittenOnlySoOften(t *testing.T) {
	m, now := newMemory(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	writes := 0
	for second := range 600 {
		at := now.Add(time.Duration(second) * time.Second)
		if !m.quietUntil("u1", at).After(at) {
			m.spend("u1", at)
			writes++
		}
	}
	assert.LessOrEqual(t, writes, reflections+int(10*time.Minute/reflectPause))
	assert.GreaterOrEqual(t, writes, int(10*time.Minute/reflectPause), "but never left for good")
	assert.Zero(t, m.quietUntil("u2", now), "another claim has its own")
	m.forget("u1")
	assert.Empty(t, m.budgets)
}

func carried() (*corev1.PersistentVolumeClaim, decide.Step) {
	b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-storage", Name: "pvc-u1", UID: "b1"}}
	return b, decide.Step{Cluster: keys.Home, Backing: decide.Backing{Cluster: keys.Home, Claim: b}, Labels: map[string]any{"team": "a"}}
}

func TestACarryThatFailsIsNoPauseThatHidesIt(t *testing.T) {
	b, step := carried()
	client := fake.NewClientset(b)
	client.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("a policy says no")
	})
	f := New(Config{Client: client})
	require.Error(t, f.carry(t.Context(), decide.Observation{UID: "u1", Now: time.Now()}, step))
	assert.Zero(t, f.memory.carriedAt("u1"))
}

func TestRefusedAttributesAreKeptForAWhile(t *testing.T) {
	gold := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: "disk.csi.dev"}
	b, step := carried()
	step.Verb = decide.Modify
	now := time.Now()
	o := decide.Observation{UID: "u1", Now: now, Claim: asking("gold")}
	for name, test := range map[string]struct {
		objects []runtime.Object
		fails   error
		reason  string
	}{
		"the class is missing":    {objects: []runtime.Object{b}, reason: "NoAttributesClass"},
		"the change is refused":   {objects: []runtime.Object{b, gold}, fails: apierrors.NewForbidden(claimsResource, "data", errors.New("no")), reason: "AttributesRefused"},
		"the change is not valid": {objects: []runtime.Object{b, gold}, fails: apierrors.NewInvalid(kind, "data", nil), reason: "AttributesRefused"},
		"the change is made":      {objects: []runtime.Object{b, gold}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.objects...)
			if test.fails != nil {
				client.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.fails })
			}
			f := New(Config{Client: client})
			f.memory.setUngiven("u1", &decide.Ungiven{Attributes: "older", Until: now.Add(time.Hour)})
			result := f.modify(t.Context(), o, step, outcome{})
			require.NoError(t, result.err)
			kept := f.memory.ungivenTo("u1", now)
			assert.Equal(t, test.reason != "", result.again)
			if test.reason == "" {
				assert.Nil(t, kept)
				return
			}
			require.NotNil(t, kept)
			assert.Equal(t, test.reason, kept.Reason)
			assert.Equal(t, "gold", kept.Attributes)
			assert.Nil(t, f.memory.ungivenTo("u1", now.Add(attributesAgain)), "then it is tried again")
		})
	}
}

func TestAChangeThatNobodyAsksForAnyMoreIsTakenBack(t *testing.T) {
	b, step := carried()
	old := "gold"
	b.Spec.VolumeAttributesClassName = &old
	client := fake.NewClientset(b)
	f := New(Config{Client: client})
	require.NoError(t, f.modify(t.Context(), decide.Observation{UID: "u1", Now: time.Now(), Claim: asking("")}, step, outcome{}).err)
	have, err := client.CoreV1().PersistentVolumeClaims(b.Namespace).Get(t.Context(), b.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Nil(t, have.Spec.VolumeAttributesClassName)
}
