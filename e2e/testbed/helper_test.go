package testbed_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// helperVariable makes the test program start one cluster and wait for its end.
const helperVariable = "LODESTONE_TESTBED_HELPER"

const helperReady = "the cluster runs"

func startHelper(ctx context.Context) error {
	if _, err := testbed.Start(ctx, testbed.Config{Name: "alone"}); err != nil {
		return err
	}
	fmt.Println(helperReady)
	return nil
}

func TestHelperWaits(t *testing.T) {
	if os.Getenv(helperVariable) == "" {
		t.Skip("runs only inside TestNothingOutlivesTheProcessThatStartedIt")
	}
	select {} // the parent ends this process
}
