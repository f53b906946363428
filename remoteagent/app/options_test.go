package app

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDefaultOptionsAreValid(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	o := NewOptions()
	require.NoError(t, o.Validate())
	assert.Equal(t, "lodestone-remote", o.Namespace)
}

func TestFlagsSetTheOptions(t *testing.T) {
	o := NewOptions()
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	o.AddFlags(flags)
	require.NoError(t, flags.Parse([]string{"--away-after=1m", "--settle-time=5s", "--workers=3", "--namespace=mine"}))
	assert.Equal(t, time.Minute, o.AwayAfter)
	assert.Equal(t, 5*time.Second, o.SettleTime)
	assert.Equal(t, 3, o.Workers)
	assert.Equal(t, "mine", o.Namespace)
}

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"no namespace":              {change: func(o *Options) { o.Namespace = "" }, says: "--namespace"},
		"a lease that is too short": {change: func(o *Options) { o.LeaseDuration = time.Second }, says: "at least 3s"},
		"no patience":               {change: func(o *Options) { o.AwayAfter = 0 }, says: "--away-after"},
		"no time to settle":         {change: func(o *Options) { o.SettleTime = -1 }, says: "--settle-time"},
		"no workers":                {change: func(o *Options) { o.Workers = 0 }, says: "--workers"},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			test.change(o)
			assert.ErrorContains(t, o.Validate(), test.says)
		})
	}
}
