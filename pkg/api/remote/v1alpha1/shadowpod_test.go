package v1alpha1

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

func TestAShadowPodIsReadWhateverItsTemplateHolds(t *testing.T) {
	const home = `"home":{"cluster":"h1","namespace":"shop","name":"web","uid":"u"},"start":true,"gracePeriodSeconds":7`
	for name, test := range map[string]struct {
		pod      string
		readable bool
	}{
		"a template":              {pod: `{"spec":{"containers":[{"name":"app","image":"app:1"}]}}`, readable: true},
		"fields of other cases":   {pod: `{"Spec":"x"}`, readable: true},
		"a text":                  {pod: `"x"`},
		"a list":                  {pod: `[1]`},
		"a quantity that is none": {pod: `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"abc"}}}]}}`},
		"quantities and texts of every kind": {pod: `{"spec":{"containers":[{"name":"app","env":[{"name":"n","value":"` +
			strings.Repeat("9", 100) + `"}],"resources":{"requests":{"cpu":"123456789012345678901.5","memory":1e3},"limits":{"memory":"1Ei"}}}],` +
			`"volumes":[{"name":"v","emptyDir":{"sizeLimit":"12e6"}}]}}`, readable: true},
		"a quantity whose text would fill the memory": {
			pod: `{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"12345678901234567890e2147483640"}}}]}}`},
		"such a quantity as a number":      {pod: `{"spec":{"overhead":{"cpu":12345678901234567890e200}}}`},
		"such a quantity in other letters": {pod: `{"spec":{"overhead":{"cpu":"12345678901234567890\u00652147483640"}}}`},
		"a quantity of very many digits":   {pod: `{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1` + strings.Repeat("0", 300_000) + `"}}]}}`},
		"a quantity that is next to nothing": {
			pod: `{"spec":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":"12345678901234567890e-2147483640"}}}]}]}}`},
		"a time that is none": {pod: `{"metadata":{"creationTimestamp":"` + strings.Repeat("é", 1000) + `"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var list ShadowPodList
			text := `{"items":[{"metadata":{"name":"web"},"spec":{` + home + `,"pod":` + test.pod + `}},{"metadata":{"name":"next"},"spec":{` +
				home + `,"pod":{}}}]}`
			for _, unmarshal := range []func([]byte, any) error{kjson.Unmarshal, json.Unmarshal} {
				require.NoError(t, unmarshal([]byte(text), &list))
				require.Len(t, list.Items, 2)
				spec := list.Items[0].Spec
				assert.Equal(t, test.readable, spec.Unreadable == "", spec.Unreadable)
				assert.LessOrEqual(t, len(spec.Unreadable), longestProblem)
				assert.Equal(t, HomePod{Cluster: "h1", Namespace: "shop", Name: "web", UID: "u"}, spec.Home)
				assert.True(t, spec.Start)
				assert.Equal(t, int64(7), *spec.GracePeriodSeconds)
				assert.Empty(t, list.Items[1].Spec.Unreadable)
			}
			written, err := json.Marshal(list.Items[0])
			require.NoError(t, err)
			assert.NotContains(t, strings.ToLower(string(written)), "unreadable")
		})
	}
}

func TestUnreadableIsTakenBackOnceTheTemplateIsMended(t *testing.T) {
	var spec ShadowPodSpec
	require.NoError(t, json.Unmarshal([]byte(`{"pod":"x","start":3}`), &spec))
	assert.NotEmpty(t, spec.Unreadable)
	assert.False(t, spec.Start)
	require.NoError(t, json.Unmarshal([]byte(`{"pod":{},"start":true}`), &spec))
	assert.Empty(t, spec.Unreadable)
	assert.True(t, spec.Start)
}

func TestAllQuantitiesOfATemplateAreChecked(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var find func(of reflect.Type)
	find = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			field := of.Field(i)
			inner := field.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Map {
				inner = inner.Elem()
			}
			if inner == reflect.TypeFor[resource.Quantity]() {
				name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				assert.Contains(t, quantityFields, name, of)
				continue
			}
			find(inner)
		}
	}
	find(reflect.TypeFor[corev1.PodTemplateSpec]())
	assert.Greater(t, len(seen), 50)
}
