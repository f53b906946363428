package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func TestEachRequestIsForAPodOfItsOwn(t *testing.T) {
	made, err := newTemplates(10, 100)
	require.NoError(t, err)
	require.NotEmpty(t, made.filter)
	for _, of := range [][]template{made.filter, made.prioritize} {
		for _, one := range of {
			assert.Equal(t, http.StatusOK, one.want)
			var args extenderv1.ExtenderArgs
			require.NoError(t, json.Unmarshal(one.of(42, nil), &args))
			assert.Equal(t, "database-0000000042", args.Pod.Name)
			assert.Contains(t, args.Pod.UID, "0000000042")
			assert.Len(t, *args.NodeNames, 10)
		}
	}
	var args extenderv1.ExtenderPreemptionArgs
	require.NoError(t, json.Unmarshal(made.preempt[0].of(1, nil), &args))
	assert.Len(t, args.NodeNameToMetaVictims, 10)
	var whole extenderv1.ExtenderArgs
	require.NoError(t, json.Unmarshal(made.whole.of(1, nil), &whole))
	assert.Len(t, whole.Nodes.Items, 10)
	for _, one := range made.malformed {
		assert.Equal(t, http.StatusBadRequest, one.want)
	}
}

func TestValueOf(t *testing.T) {
	const metrics = "# HELP go_goroutines Number of goroutines.\ngo_goroutines_more 3\ngo_goroutines 12\nheap 1.5e+06\n"
	value, err := valueOf(metrics, "go_goroutines")
	require.NoError(t, err)
	assert.InDelta(t, 12, value, 0)
	value, err = valueOf(metrics, "heap")
	require.NoError(t, err)
	assert.InDelta(t, 1.5e6, value, 0)
	_, err = valueOf(metrics, "other")
	assert.ErrorContains(t, err, "does not expose it")
}
