// Umbrella: all of the public C++ API. With the component `live` (LibTorch) also Trace, Watch, Guard, clipping and
// the GradScaler.
#pragma once

#include "firstfault/base/error.h"
#include "firstfault/events/origin.h"
#include "firstfault/present/html.h"
#include "firstfault/present/json.h"
#include "firstfault/present/text.h"
#include "firstfault/reason/engine.h"
#include "firstfault/record/run.h"

#ifdef FIRSTFAULT_LIVE
#include "firstfault/live/guard.h"
#include "firstfault/live/guard/adaptive_clip.h"
#include "firstfault/live/guard/clip.h"
#include "firstfault/live/guard/grad_scaler.h"
#include "firstfault/live/session.h"
#include "firstfault/live/watch.h"
#endif
