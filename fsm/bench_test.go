package fsm

import "testing"

// BenchmarkGuard is one question of a pass, asked for the first time in it.
func BenchmarkGuard(b *testing.B) {
	for name, expr := range map[string]string{
		"result": `result.n > 3`,
		"held":   `"lock" in held`,
		"self":   `self.metadata.?annotations[?"phasegate.dev/retry"].orValue("") == ""`,
		"all":    `self.spec.parts.all(p, p.name != "x")`,
	} {
		b.Run(name, func(b *testing.B) {
			scope, r := fullRun(b)
			e, errs := scope.Compile(expr)
			if len(errs) > 0 {
				b.Fatal(errs)
			}
			b.ReportAllocs()
			for b.Loop() {
				if answer := again(r).truth(b.Context(), e); answer.err != nil || !answer.open {
					b.Fatalf("%+v", answer)
				}
			}
		})
	}
}
