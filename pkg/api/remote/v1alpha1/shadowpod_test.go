package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		"a time that is none":     {pod: `{"metadata":{"creationTimestamp":"` + strings.Repeat("é", 1000) + `"}}`},
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
