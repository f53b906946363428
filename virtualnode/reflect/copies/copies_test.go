package copies

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var place = Place{HomeID: "h1", Namespace: "shop-h1"}

func marks(uid string) map[string]string {
	return map[string]string{keys.HomeID: "h1", keys.Reflected: uid}
}

func TestOnlyCopiesOfThisHomeAreOurs(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"no label":         {},
		"our copy":         {labels: marks("u1"), want: true},
		"only our home":    {labels: map[string]string{keys.HomeID: "h1"}},
		"only a copy":      {labels: map[string]string{keys.Reflected: "u1"}},
		"another home's":   {labels: map[string]string{keys.HomeID: "h2", keys.Reflected: "u1"}},
		"a copy of nobody": {labels: map[string]string{keys.HomeID: "h1", keys.Reflected: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, Ours(&metav1.ObjectMeta{Labels: test.labels}, "h1"))
		})
	}
}

func TestCopiesCarryContentAndMarksOnly(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "settings", UID: "u1", ResourceVersion: "5", Finalizers: []string{"home.test/f"},
		Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"},
		OwnerReferences: []metav1.OwnerReference{{Name: "operator"}},
	}
	want := metav1.ObjectMeta{Namespace: "shop-h1", Name: "settings", Labels: marks("u1")}
	assert.Equal(t, &corev1.ConfigMap{ObjectMeta: want, Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {1}}, Immutable: ptr.To(true)},
		place.ConfigMap(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {1}}, Immutable: ptr.To(true)}))
	assert.Equal(t, &corev1.Secret{ObjectMeta: want, Data: map[string][]byte{"a": {1}}, Type: corev1.SecretTypeTLS},
		place.Secret(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"a": {1}}, Type: corev1.SecretTypeTLS}))
}

func TestTokenSecretLooksLikeATokenVolume(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "p1"}}
	assert.Equal(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop-h1", Name: "lodestone-token-p1", Labels: marks("p1")},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{"token": []byte("t"), "ca.crt": []byte("ca"), "namespace": []byte("shop")},
	}, place.Token("lodestone-token-p1", pod, "t", "ca"))
}

func TestConfigMapCopyIsBroughtInStep(t *testing.T) {
	type change = func(*corev1.ConfigMap)
	for name, test := range map[string]struct {
		have, want change
		change     Change
	}{
		"in step":             {have: func(*corev1.ConfigMap) {}},
		"another's label":     {have: func(c *corev1.ConfigMap) { c.Labels["team"] = "x" }},
		"nil and empty":       {have: func(c *corev1.ConfigMap) { c.BinaryData = map[string][]byte{} }},
		"changed content":     {have: func(c *corev1.ConfigMap) { c.Data["a"] = "x" }, change: Update},
		"changed at home":     {want: func(c *corev1.ConfigMap) { c.Data["b"] = "x" }, change: Update},
		"another home object": {want: func(c *corev1.ConfigMap) { c.Labels[keys.Reflected] = "u2" }, change: Update},
		"made immutable":      {want: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true) }, change: Update},
		"no longer immutable": {have: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true) }, change: Replace},
		"immutable, and other content": {
			have: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true) }, want: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true); c.Data["a"] = "x" }, change: Replace,
		},
		"immutable, and another home object of the same content": {
			have: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true) }, want: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true); c.Labels[keys.Reflected] = "u2" }, change: Update,
		},
		"a forged mark": {have: func(c *corev1.ConfigMap) { c.Labels[keys.PodUID] = "p1" }, change: Update},
	} {
		t.Run(name, func(t *testing.T) {
			have := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", UID: "r1", ResourceVersion: "7", Labels: marks("u1")}, Data: map[string]string{"a": "b"}}
			want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Labels: marks("u1")}, Data: map[string]string{"a": "b"}}
			if test.have != nil {
				test.have(have)
			}
			if test.want != nil {
				test.want(want)
			}
			before := have.DeepCopy()
			next, change := MergeConfigMap(have, want)
			assert.Equal(t, test.change, change)
			assert.Equal(t, before, have, "what is cached is not changed")
			again, change := MergeConfigMap(next, want)
			assert.Equal(t, None, change, "what was written is in step")
			assert.Equal(t, next, again)
			assert.Equal(t, "7", next.ResourceVersion)
			assert.Equal(t, want.Labels[keys.Reflected], next.Labels[keys.Reflected])
			assert.NotContains(t, next.Labels, keys.PodUID)
		})
	}
}

func TestSecretPatchBeginsWithTheProof(t *testing.T) {
	secret := place.Secret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password", UID: "u1"}, Data: map[string][]byte{"a": []byte("b")}})
	secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "ledger", UID: "l1"}}
	patch, err := SecretPatch(secret)
	require.NoError(t, err)
	proof, err := ProofPatch("h1", "u1")
	require.NoError(t, err)
	var all, first []map[string]any
	require.NoError(t, json.Unmarshal(patch, &all))
	require.NoError(t, json.Unmarshal(proof, &first))
	assert.Equal(t, []map[string]any{
		{"op": "test", "path": "/metadata/labels/lodestone.dev~1home", "value": "h1"},
		{"op": "test", "path": "/metadata/labels/lodestone.dev~1reflected", "value": "u1"},
	}, first)
	assert.Equal(t, first, all[:2])
	assert.Equal(t, []map[string]any{
		{"op": "add", "path": "/metadata/ownerReferences", "value": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "ledger", "uid": "l1"}}},
		{"op": "add", "path": "/data", "value": map[string]any{"a": "Yg=="}},
		{"op": "add", "path": "/immutable", "value": false},
	}, all[2:])
}
