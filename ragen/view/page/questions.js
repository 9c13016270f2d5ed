// Which charts answer which question. A chart: {title, series: [{label, name, low?, high?, dash?}], lines?, stacked?}.
// Series whose column is missing fall out, and a chart without any series is left out.

const VALIDATION = [["val-env", "sampled"], ["val-env-greedy", "greedy"]];
const ROLLOUTS = [["train", "training"], ["val-env", "validation"], ["val-env-greedy", "validation, greedy"]];
const SAMPLES = [["collapse_first_turn_sample", "first turns"], ["collapse_trajectory_sample", "any turn"]];
const STAGES = [
  ["gen", "rollout"], ["filter", "filter"], ["old_log_prob", "log-probs"], ["ref", "reference"], ["values", "values"],
  ["adv", "advantages"], ["update_critic", "critic"], ["update_actor", "actor"],
  ["gradient_analysis", "gradient analysis"], ["collapse_metrics", "collapse metrics"], ["testing", "validation"],
  ["save_checkpoint", "checkpoint"], ["write_episodes", "writing episodes"],
];
const CUTS = [
  ["turn_cap", "turn cap"], ["action_budget", "action budget"], ["context", "context"], ["first_prompt", "first prompt"],
  ["reply_length", "reply length"], ["parse_failure", "form"], ["dropped_actions", "actions dropped"],
  ["dropped_turns", "turns dropped"],
];
const PASS_RATES = [
  ["none", "never solved"], ["few", "below 1/3"], ["some", "1/3 to 2/3"], ["most", "above 2/3"], ["all", "always solved"],
];
const FAULTS = [
  ["env_errors", "environment errors"], ["env_timeouts", "environment timeouts"], ["engine_errors", "engine errors"],
  ["incomplete_groups", "incomplete groups"],
];

const named = (prefix, pairs) => pairs.map(([key, label]) => ({ label, name: `${prefix}/${key}` }));
const over = (prefixes, key) => prefixes.map(([prefix, label]) => ({ label, name: `${prefix}/${key}` }));
const shares = (tag, of) => PASS_RATES.map(([bin, label]) => ({ label, name: `levels/${tag}/${of}_${bin}` }));

function learning(tags, references) {
  const charts = tags.flatMap((tag) => [
    {
      title: `Success, ${tag}`,
      series: [
        ...VALIDATION.map(([rollout, label]) => ({
          label: `validation, ${label}`,
          name: `${rollout}/${tag}/success`,
          low: `${rollout}/${tag}/success_low`,
          high: `${rollout}/${tag}/success_high`,
          dash: label === "greedy" ? [6, 4] : undefined,
        })),
        { label: "training", name: `train/${tag}/success`, isThin: true },
      ],
      lines: Object.entries(references?.[tag] ?? {}).filter(([, value]) => typeof value === "number")
        .map(([label, value]) => ({ label, value })),
      range: [0, 1],
      isWide: true,
    },
    { title: `Score, ${tag}`, series: over(ROLLOUTS, `${tag}/score`) },
    {
      title: `Success on unseen and seen levels, ${tag}`,
      series: ["unseen", "seen"].map((novelty) => ({
        label: novelty,
        name: `val-env/${tag}/success_${novelty}`,
        low: `val-env/${tag}/success_${novelty}_low`,
        high: `val-env/${tag}/success_${novelty}_high`,
      })),
      range: [0, 1],
    },
    { title: `Groups by pass rate, ${tag}`, series: shares(tag, "played"), isStacked: true },
    { title: `Pool of levels by pass rate, ${tag}`, series: shares(tag, "pool"), isStacked: true },
  ]);
  return [...charts, { title: "Loss of supervised training", series: [
    { label: "training", name: "sft/train_loss" }, { label: "held out", name: "sft/val_loss" },
  ] }];
}

const COLLAPSE = [
  { title: "Reward deviation within groups", series: [
    { label: "all groups", name: "rollout/in_group_reward_std" },
    { label: "kept groups", name: "rollout/chosen_in_group_reward_std", dash: [6, 4] },
  ], fromZero: true },
  { title: "Groups kept by the filter", series: [{ label: "kept", name: "rollout/filter_kept_ratio" }], range: [0, 1] },
  { title: "Entropy", series: [{ label: "policy", name: "actor/entropy" }], fromZero: true },
  { title: "Entropy by turn", series: Array.from({ length: 6 }, (_, i) => (
    { label: `turn ${i + 1}`, name: `entropy/turn_${i + 1}` })), fromZero: true },
  { title: "KL", series: [
    { label: "since the rollout", name: "actor/ppo_kl" }, { label: "to the reference", name: "actor/kl_loss" },
  ] },
  { title: "Mutual information of prompt and reasoning", series: over(SAMPLES, "mi_estimate") },
  { title: "Retrieval of the prompt", series: [
    ...over(SAMPLES, "retrieval_accuracy"),
    { label: "chance", name: "collapse_first_turn_sample/retrieval_chance_level", dash: [2, 4] },
  ], range: [0, 1] },
  { title: "Valid replies", series: over(ROLLOUTS, "format/valid"), range: [0, 1] },
  { title: "Reply length in tokens", series: over(ROLLOUTS, "response_length"), fromZero: true },
  { title: "Gradient norm", series: [
    { label: "actor", name: "actor/grad_norm" }, { label: "critic", name: "critic/grad_norm" },
    { label: "supervised", name: "sft/grad_norm" },
  ], fromZero: true },
  { title: "What the critic explains", series: [{ label: "explained", name: "critic/vf_explained_var" }] },
  { title: "Valid less invalid replies, in reward", series: [
    { label: "difference", name: "incentive/valid_minus_invalid" },
  ] },
  { title: "Engine and trainer disagree", series: [
    { label: "mean", name: "rollout/logprob_mismatch_mean" }, { label: "largest", name: "rollout/logprob_mismatch_max" },
  ] },
];

const CUT = [
  { title: "Cut in training", series: named("train/truncation", CUTS), fromZero: true },
  { title: "Cut in validation", series: named("val-env/truncation", CUTS), fromZero: true },
  { title: "Faults in training", series: named("train/faults", FAULTS), fromZero: true },
  { title: "Faults in validation", series: named("val-env/faults", FAULTS), fromZero: true },
];

const TIME = [
  { title: "Seconds of a step, by stage", series: named("timing_s", STAGES), isStacked: true, isWide: true },
  { title: "Seconds of a step", series: [{ label: "step", name: "timing_s/step" }], fromZero: true },
  { title: "Tokens per second and device", series: [
    { label: "all stages", name: "perf/throughput" }, { label: "supervised", name: "sft/tokens_per_second" },
  ], fromZero: true },
];

// The tags a table knows, from the names of its metrics.
export function tagsOf(table) {
  const pattern = /^(?:train|val-env|val-env-greedy|sampled|greedy|random|solver)\/([^/]+)\/success$/;
  return [...new Set(table.names.map((name) => pattern.exec(name)?.[1]).filter(Boolean))].sort();
}

export function questions(tags, references) {
  return [
    { key: "learn", title: "Does it learn?", charts: learning(tags, references) },
    { key: "collapse", title: "Does it collapse?", charts: COLLAPSE },
    { key: "cut", title: "What was cut?", charts: CUT },
    { key: "time", title: "Where does the time go?", charts: TIME },
  ];
}

const isFilled = (values, isZeroDull) => values?.some((value) => value !== null && !(isZeroDull && value === 0));

// The chart with the series this table has. Among counts of cuts, those that never happened say nothing.
export function present(chart, table) {
  const isDull = chart.title.startsWith("Cut") || chart.title.startsWith("Faults") || chart.isStacked;
  const series = chart.series.filter((one) => isFilled(table.column(one.name), isDull));
  return series.length ? { ...chart, series } : null;
}
