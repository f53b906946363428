package virtualclass_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

func term(expressions ...corev1.TopologySelectorLabelRequirement) corev1.TopologySelectorTerm {
	return corev1.TopologySelectorTerm{MatchLabelExpressions: expressions}
}

func in(key string, values ...string) corev1.TopologySelectorLabelRequirement {
	return corev1.TopologySelectorLabelRequirement{Key: key, Values: values}
}

func TestWithin(t *testing.T) {
	labels := map[string]string{"zone": "a", "rack": "1"}
	for name, test := range map[string]struct {
		terms []corev1.TopologySelectorTerm
		want  bool
	}{
		"no terms are everywhere":            {want: true},
		"a value of several":                 {terms: []corev1.TopologySelectorTerm{term(in("zone", "b", "a"))}, want: true},
		"another value":                      {terms: []corev1.TopologySelectorTerm{term(in("zone", "b"))}},
		"all expressions of a term count":    {terms: []corev1.TopologySelectorTerm{term(in("zone", "a"), in("rack", "2"))}},
		"one term of several is enough":      {terms: []corev1.TopologySelectorTerm{term(in("zone", "b")), term(in("rack", "1"))}, want: true},
		"a label that the node has not":      {terms: []corev1.TopologySelectorTerm{term(in("row", ""))}},
		"a term without expressions is none": {terms: []corev1.TopologySelectorTerm{term()}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, virtualclass.Within(test.terms, labels)) })
	}
}

func TestTopologies(t *testing.T) {
	terms := []corev1.TopologySelectorTerm{term(in("zone", "a"))}
	assert.Equal(t, map[string][]corev1.TopologySelectorTerm{"zonal": terms}, virtualclass.Topologies([]*storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "everywhere"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "zonal"}, AllowedTopologies: terms},
	}))
}
