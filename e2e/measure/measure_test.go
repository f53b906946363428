package measure

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMedianIsTheMiddleOrTheMeanOfTheTwoInTheMiddle(t *testing.T) {
	assert.Equal(t, time.Duration(0), Median(nil))
	assert.Equal(t, time.Duration(3), Median([]time.Duration{9, 1, 3}))
	assert.Equal(t, time.Duration(5), Median([]time.Duration{9, 1, 3, 7}))
}

func TestMedianRatioIsTakenPairByPair(t *testing.T) {
	assert.InDelta(t, 2.0, MedianRatio([]time.Duration{20, 30, 900}, []time.Duration{10, 15, 10}), 1e-9)
	assert.InDelta(t, 2.5, MedianRatio([]time.Duration{20, 30}, []time.Duration{10, 10}), 1e-9)
	assert.InDelta(t, 0.0, MedianRatio(nil, nil), 1e-9)
}

func TestResultSaysWhetherItKeepsItsBudget(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Conclude(&out, []Result{AtMost("m", 2, 2.5, "x")}))
	require.EqualError(t, Conclude(&out, []Result{AtMost("m", 3, 2.5, "x")}), "1 of 1 measures are over their budget")
	assert.Equal(t, `{"measure":"m","value":2,"budget":2.5,"unit":"x","ok":true}
{"measure":"m","value":3,"budget":2.5,"unit":"x","ok":false}
`, out.String())
}
